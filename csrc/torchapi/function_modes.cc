#include "torchapi/function_modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>

#include "torchapi/global_state.h"

namespace kintsugi::torchapi {

using ModeStack = at::impl::PythonTorchFunctionTLS;
using at::impl::TorchFunctionDisabledState;

PyObject* innermostFunctionMode() {
  const int64_t count = ModeStack::stack_len();
  return count == 0 ? nullptr : ModeStack::get_stack_at(count - 1)->ptr(getPyInterpreter());
}

bool hasDispatchModes() { return c10::impl::TorchDispatchModeTLS::any_modes_set(); }

bool operatorsCallUnseen() {
  if (hasDispatchModes()) {
    return true;
  }
  const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state().stack;
  if (hooks.empty()) [[likely]] {
    return false;
  }
  PyObject* pack = hooks.top().first.ptr(getPyInterpreter());
  return !PyFunction_Check(PyMethod_Check(pack) ? PyMethod_GET_FUNCTION(pack) : pack);
}

bool operatorsCallModesOrHooks() {
  return hasDispatchModes() || !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

namespace {

thread_local FunctionModesOff* innermost = nullptr;

void setState(int state) { ModeStack::set_disabled_state(static_cast<TorchFunctionDisabledState>(state)); }
int state() { return static_cast<int>(ModeStack::get_disabled_state()); }

}  // namespace

FunctionModesOff::FunctionModesOff() : outer_(innermost) {
  innermost = this;
  if (!hasFunctionModes()) return;
  before_ = state();
  ModeStack::set_disabled_state(TorchFunctionDisabledState::ALL_DISABLED);
}

FunctionModesOff::~FunctionModesOff() {
  innermost = outer_;
  if (before_ >= 0) setState(before_);
}

FunctionModesBack::FunctionModesBack() {
  if (innermost == nullptr || innermost->before_ < 0) return;
  before_ = state();
  setState(innermost->before_);
}

FunctionModesBack::~FunctionModesBack() {
  if (before_ >= 0) setState(before_);
}

}  // namespace kintsugi::torchapi
