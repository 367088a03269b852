#include "capture/hashes.h"

#include <algorithm>

#include "capture/special_methods.h"
#include "pyapi/plain.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

bool isHashedInPython(PyObject* object) {
  const bool inPython = pythonMethod(object, "__hash__") != nullptr;
  if (PyTuple_Check(object) && !inPython) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    return std::any_of(items, items + PyTuple_GET_SIZE(object), isHashedInPython);
  }
  Py_hash_t hash = 0;
  return inPython && !torchapi::isTensor(object) && !pyapi::plainHash(object, &hash);
}

}  // namespace kintsugi::capture
