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
  // This key is included while there is a layer, except while the layer passes a call on.
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// Calls torch's own binding, because the headers of grad()'s wrappers need a library that torch does not
// ship.
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
