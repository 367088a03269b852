#include "capture/enum_member.h"

#include "capture/special_methods.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

bool isEnumMember(PyObject* object) {
  static constinit pyapi::Lazy<PyObject*> enumTypeSlot;
  PyObject* enumType = enumTypeSlot.get([] {
    PyObject* module = pyapi::importModule("enum");
    return PyObject_GetAttrString(module, "Enum");
  });
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(enumType)) != 0;
}

bool isPlainFlag(PyTypeObject* type) {
  static constinit pyapi::Lazy<PyObject*> moduleSlot;
  PyObject* module = moduleSlot.get([] { return pyapi::importModule("enum"); });
  static constinit pyapi::Lazy<PyObject*> flagSlot;
  PyObject* flag = flagSlot.get([&] { return PyObject_GetAttrString(module, "Flag"); });
  static constinit pyapi::Lazy<PyObject*> baseSlot;
  PyObject* base = baseSlot.get([&] { return PyObject_GetAttrString(module, "Enum"); });
  if (!PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(flag))) return false;
  for (const char* name : {"_missing_", "__new__", "__invert__"}) {
    PyObject* found = specialMethod(type, name);
    if (found != specialMethod(reinterpret_cast<PyTypeObject*>(flag), name) &&
        found != specialMethod(reinterpret_cast<PyTypeObject*>(base), name)) {
      return false;
    }
  }
  return true;
}

}  // namespace kintsugi::capture
