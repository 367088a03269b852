#include "torchapi/transforms.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

bool isWrapper(PyObject* object) {
  static const c10::DispatchKeySet kWrapped(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return isTensor(object) && THPVariable_Unpack(object).unsafeGetTensorImpl()->key_set().has_any(kWrapped);
}

bool isZeroTensor(PyObject* tensor) { return THPVariable_Unpack(tensor)._is_zerotensor(); }

bool transformsActive() {
  // Included from the first layer to the last; while a layer passes a call on, it is not one of them.
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// The headers of the wrappers of grad() need a library that torch does not bring, so torch's own binding is
// asked.
pyapi::Ref<> innermost(PyObject* wrapper) {
  static constinit pyapi::Lazy<PyObject*> unwrapSlot;
  PyObject* unwrap = unwrapSlot.get([]() -> PyObject* {
    pyapi::Ref<> module = pyapi::steal(pyapi::importModule("torch._C._functorch"));
    return module ? PyObject_GetAttrString(module.get(), "get_unwrapped") : nullptr;
  });
  pyapi::Ref<> tensor = pyapi::newRef(wrapper);
  while (isWrapper(tensor.get())) {
    pyapi::Ref<> inner =
        unwrap != nullptr ? pyapi::steal(PyObject_CallOneArg(unwrap, tensor.get())) : pyapi::Ref<>();
    if (!inner) {
      PyErr_Clear();
      return tensor;
    }
    tensor = std::move(inner);
  }
  return tensor;
}

}  // namespace kintsugi::torchapi
