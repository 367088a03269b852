#include "capture/hashes.h"

#include <algorithm>

#include "capture/special_methods.h"
#include "pyapi/plain.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

bool isHashedInPython(PyObject* object) {
  // A `__hash__` that is no slot of a type in C may be anything: a partial, a static method.
  PyObject* method = specialMethod(Py_TYPE(object), "__hash__");
  const bool inPython = method != nullptr && method != Py_None && Py_TYPE(method) != &PyWrapperDescr_Type;
  if (PyTuple_Check(object) && !inPython) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    return std::any_of(items, items + PyTuple_GET_SIZE(object), isHashedInPython);
  }
  Py_hash_t hash = 0;
  return inPython && !torchapi::isTensor(object) && !pyapi::plainHash(object, &hash);
}

}  // namespace kintsugi::capture
