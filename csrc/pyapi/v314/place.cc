// The place that an exception came from, as an object: an int of a class that nothing else has.
//
// CPython 3.14 keeps the place on the stack as a tagged int, which is no object. For each place, one object
// is made and never freed.
#include <vector>

#include "pyapi/errors.h"
#include "pyapi/frame.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

PyTypeObject* makeClass() {
  PyType_Slot slots[] = {{0, nullptr}};
  PyType_Spec spec = {"kintsugi._Place", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(
      PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(&PyLong_Type)));
}

PyTypeObject* placeClass = nullptr;  // the GIL guards both
std::vector<PyObject*>* places = nullptr;

}  // namespace

bool isPlace(PyObject* object) { return Py_TYPE(object) == placeClass; }

PyObject* newPlace(int32_t unit) {
  const PendingErrorScope kept;  // called while an exception is pending
  if (placeClass == nullptr) {
    placeClass = makeClass();
    if (placeClass == nullptr) return nullptr;
    places = new std::vector<PyObject*>();
  }
  const auto index = static_cast<size_t>(unit);
  if (index >= places->size()) places->resize(index + 1);
  PyObject*& place = (*places)[index];
  if (place == nullptr) place = PyObject_CallFunction(reinterpret_cast<PyObject*>(placeClass), "i", unit);
  return Py_XNewRef(place);
}

PyObject* plainPlace(_PyStackRef place) {
  PyObject* object = newPlace(static_cast<int32_t>(PyStackRef_UntagInt(place)));
  if (object == nullptr) Py_FatalError("out of memory");  // the frame can't be converted
  return object;
}

_PyStackRef taggedPlace(PyObject* place) {
  const _PyStackRef tagged = PyStackRef_TagInt(PyLong_AsLong(place));
  Py_DECREF(place);
  return tagged;
}

}  // namespace kintsugi::pyapi
