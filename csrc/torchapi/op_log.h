// Inside torchapi only: the dispatcher fallback that writes down every ATen call of a thread while a log is
// active.
//
// Ownership: an OpLog belongs to one OpRecorder; the thread's active log is borrowed. Threads: a log is only
// touched by its own thread; calls from other threads (which may inherit the key through torch's thread-local
// state) find no active log and are passed on. GIL: not needed. Invalidation: references into `values` die at
// the next call that is logged.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace kintsugi::torchapi {

// Included in the thread's keys while recording. It comes before autograd, autocast and every wrapper, except
// for pre-dispatch tracing.
inline constexpr c10::DispatchKey kRecorderKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct OpLog {
  struct Entry {
    c10::OperatorHandle op;
    size_t firstInput;
    size_t firstOutput;
    size_t end;
    // Called below autograd: by the binding of a factory function, or by C++ code that fills memory by hand.
    bool belowAutograd;
  };
  // An output that the log must not own, because bindings of factory functions copy a tensor that has another
  // owner.
  struct WeakOutput {
    size_t index;  // into `values`, where the place is still empty
    using Weak = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;
    Weak tensor;
  };
  std::vector<Entry> entries;
  std::vector<c10::IValue> values;
  std::vector<WeakOutput> weakOutputs;
  // A call that is no entry, because it has raised, may have changed something before.
  bool failedInEffect = false;

  void clear() {
    failedInEffect = false;
    entries.clear();
    values.clear();
    weakOutputs.clear();
  }
  // Puts the weak outputs that still exist into `values`.
  void lockOutputs();
  // The log of this thread that the fallback writes to; null: none.
  static OpLog*& active();
};

// Visits each tensor of a logged value, undefined ones too.
template <typename F>
void forEachTensor(const c10::IValue& value, F&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) {
        visit(element.toTensor());
      }
    }
  }
}

}  // namespace kintsugi::torchapi
