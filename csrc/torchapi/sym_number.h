// Numbers of the trace as arguments of torch's bindings: a torch.SymInt or SymFloat takes the number's place.
//
// A binding passes a symbolic number on to the dispatcher unchanged. There the recorder sees which value of
// the trace an argument is, and the kernel gets the number itself. If a binding needs the number, it asks the
// node, which tells the sink: a guard pins the number before the binding goes on.
//
// Ownership: the object borrows the sink, which must outlive it; neither leaves the call. Thread: the
// recording one; pins happen with the GIL. Example: stack slot 5 -> makeSymNumber(sink, {%3, int, 5}).
#pragma once

#include <cstdint>

#include "ir/trace.h"
#include "pyapi/ref.h"

namespace kintsugi::torchapi {

class NumberSink {
 public:
  virtual ~NumberSink() = default;
  // From here on, the trace depends on this very number.
  virtual void pinNumber(ir::ValueId value) = 0;
};

struct TraceNumber {
  ir::ValueId value = ir::kNone;
  ir::TypeKind kind = ir::TypeKind::kInt;  // or kFloat
  int64_t i = 0;
  double f = 0;
  // A constant that is hidden from bindings, because they must not decide with it about sizes that vary.
  bool hidden = false;
};

// A torch.SymInt or torch.SymFloat. Null: a Python exception is pending.
pyapi::Ref<> makeSymNumber(NumberSink& sink, const TraceNumber& number);
// Replaces symbolic numbers by plain ones, in lists, tuples and dicts too. Null: there are none; or, with a
// Python exception pending, the object could not be made.
pyapi::Ref<> withoutSymNumbers(PyObject* object);

}  // namespace kintsugi::torchapi
