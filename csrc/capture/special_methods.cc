#include "capture/special_methods.h"

#include <array>
#include <string>
#include <unordered_map>

#include "pyapi/dict.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

PyObject* specialMethod(PyTypeObject* type, const char* name) {
  // A recording asks for a few dozen names thousands of times, and making the string costs more than the
  // look-up. Most names are literals, so their address finds them. A name that was built may reuse the
  // address of an earlier one: the text is compared as well.
  struct Name {
    const char* address = nullptr;
    PyObject* text = nullptr;
  };
  static std::array<Name, 256> recent;
  Name& slot = recent[(reinterpret_cast<uintptr_t>(name) * 0x9e3779b97f4a7c15ull) >> 56];
  if (slot.address != name || pyapi::ascii(slot.text) != name) {
    static std::unordered_map<std::string, PyObject*> interned;
    PyObject*& key = interned[name];
    if (key == nullptr) key = PyUnicode_InternFromString(name);
    slot = {name, key};
  }
  return pyapi::lookUpInType(type, slot.text);
}

PyObject* pythonMethod(PyObject* object, const char* name) {
  PyObject* method = specialMethod(Py_TYPE(object), name);
  return method != nullptr && PyFunction_Check(method) ? method : nullptr;
}

bool isSlot(PyObject* descriptor) {
  if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return false;
  PyTypeObject* owner = PyDescr_TYPE(descriptor);
  return PyType_HasFeature(owner, Py_TPFLAGS_HEAPTYPE) || pyapi::isDefaultDict(owner);
}

bool isProperty(PyObject* descriptor) { return pyapi::bindsLikeProperty(descriptor); }

bool isFunctionName(PyObject* name) {
  for (const char* known : {"__name__", "__qualname__", "__module__", "__doc__"}) {
    if (PyUnicode_CompareWithASCIIString(name, known) == 0) return true;
  }
  return false;
}

}  // namespace kintsugi::capture
