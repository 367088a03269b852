#include "torchapi/op_log.h"

#include <torch/library.h>

#include "torchapi/op_schema.h"
#include "torchapi/sym_node.h"
#include "torchapi/transforms.h"

namespace kintsugi::torchapi {

OpLog*& OpLog::active() {
  static thread_local OpLog* log = nullptr;
  return log;
}

void OpLog::lockOutputs() {
  for (WeakOutput& output : weakOutputs) {
    auto tensor = output.tensor.lock();
    if (tensor.defined()) {
      values[output.index] = at::Tensor(std::move(tensor));
    }
  }
  weakOutputs.clear();
}

namespace {

using StackIterator = torch::jit::Stack::iterator;

void appendWeak(OpLog& log, StackIterator first, StackIterator last) {
  for (; first != last; ++first) {
    if (first->isTensor() && first->toTensor().defined()) {
      log.weakOutputs.push_back(
          {log.values.size(), OpLog::WeakOutput::Weak(first->toTensor().getIntrusivePtr())});
      log.values.emplace_back();
    } else {
      log.values.push_back(*first);
    }
  }
}

// While functorch transforms are active, a call goes through their layers first. The log gets what the last
// layer calls, on the tensors inside the wrappers: this function is called again then, with no layer left.
void recordCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  OpLog* log = OpLog::active();
  if (log != nullptr && transformsActive()) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecorderKey), stack);
    return;
  }
  // Calls that the kernel itself makes are not logged.
  c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
  if (log == nullptr) {
    op.callBoxed(stack);
    return;
  }
  // The kernel consumes the stack, so the inputs are copied before the call.
  const size_t argCount = op.schema().arguments().size();
  const size_t first = log->values.size();
  log->values.insert(log->values.end(), stack->end() - static_cast<ptrdiff_t>(argCount), stack->end());
  const size_t base = stack->size() - argCount;
  for (size_t k = base; k < stack->size(); ++k) {
    makeConcrete((*stack)[k]);  // the log keeps the symbolic ones
  }
  const bool belowAutograd = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView);
  try {
    op.callBoxed(stack);
  } catch (...) {
    log->values.resize(first);
    log->failedInEffect = log->failedInEffect || mayHaveEffects(op);
    throw;
  }
  const size_t firstOutput = log->values.size();
  if (belowAutograd) {
    appendWeak(*log, stack->begin() + static_cast<ptrdiff_t>(base), stack->end());
  } else {
    log->values.insert(log->values.end(), stack->begin() + static_cast<ptrdiff_t>(base), stack->end());
  }
  log->entries.push_back({op, first, firstOutput, log->values.size(), belowAutograd});
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&recordCall>());
}

}  // namespace kintsugi::torchapi
