#include "torchapi/transforms.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>

#include "torchapi/tensor_info.h"

namespace kintsugi::torchapi {

bool isWrapper(PyObject* object) {
  static const c10::DispatchKeySet kWrapped(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return isTensor(object) && THPVariable_Unpack(object).unsafeGetTensorImpl()->key_set().has_any(kWrapped);
}

bool transformsActive() {
  // Included from the first layer to the last; while a layer passes a call on, it is not one of them.
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

pyapi::Ref<> innermost(PyObject* wrapper) {
  at::Tensor tensor = THPVariable_Unpack(wrapper);
  while (const auto* batched = at::functorch::maybeGetBatchedImpl(tensor)) {
    tensor = at::Tensor(batched->value());
  }
  return pyapi::steal(THPVariable_Wrap(tensor));
}

}  // namespace kintsugi::torchapi
