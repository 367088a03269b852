#include "capture/special_methods.h"

#include <array>
#include <cstring>
#include <string>
#include <unordered_map>

#include "pyapi/types.h"

namespace kintsugi::capture {

PyObject* specialMethod(PyTypeObject* type, const char* name) {
  // A few dozen names, asked for thousands of times a recording: making the string costs more than the
  // look-up. Nearly all are literals, each with an address of its own; one that was built has the address of
  // an earlier one at times, so the text is compared.
  struct Name {
    const char* address = nullptr;
    PyObject* text = nullptr;
  };
  static std::array<Name, 256> recent;
  Name& slot = recent[(reinterpret_cast<uintptr_t>(name) * 0x9e3779b97f4a7c15ull) >> 56];
  if (slot.address != name || std::strcmp(PyUnicode_AsUTF8(slot.text), name) != 0) {
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

}  // namespace kintsugi::capture
