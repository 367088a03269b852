#include "torchapi/dispatched.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/lift_fresh_copy.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "ops/operator.h"
#include "torchapi/op_log.h"
#include "torchapi/op_schema.h"

namespace kintsugi::torchapi {

PyObject* dataOf(PyObject* tensor) {
  HANDLE_TH_ERRORS
  // at::Tensor::data() would not call the dispatcher either.
  static const auto data =
      findOpSchema(ops::nameOf(ops::Operator::kData))->op.typed<at::Tensor(const at::Tensor&)>();
  return THPVariable_Wrap(data.call(THPVariable_Unpack(tensor)));
  END_HANDLE_TH_ERRORS
}

pyapi::Ref<> constantOf(PyObject* tensor) {
  const auto copy = [&]() -> PyObject* {
    HANDLE_TH_ERRORS
    c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
    return THPVariable_Wrap(at::clone(THPVariable_Unpack(tensor).detach()));
    END_HANDLE_TH_ERRORS
  };
  return pyapi::steal(copy());
}

PyObject* copyOfConstant(PyObject* constant) {
  HANDLE_TH_ERRORS
  return THPVariable_Wrap(at::lift_fresh_copy(THPVariable_Unpack(constant)));
  END_HANDLE_TH_ERRORS
}

}  // namespace kintsugi::torchapi
