#include "torchapi/python_object.h"

#include <c10/core/TensorImpl.h>

namespace kintsugi::torchapi {

PyObject* pythonObjectOf(const void* impl) {
  return static_cast<const c10::TensorImpl*>(impl)->pyobj_slot()->load_pyobj();
}

}  // namespace kintsugi::torchapi
