#include "pyapi/name_fields.h"

#include <structmember.h>

#include <cstddef>

#include "pyapi/lazy.h"
#include "pyapi/text.h"

namespace kintsugi::pyapi {

namespace {

PyMemberDef functionName = {"__name__", T_OBJECT, offsetof(PyFunctionObject, func_name), READONLY, nullptr};
PyMemberDef functionQualifiedName = {"__qualname__", T_OBJECT, offsetof(PyFunctionObject, func_qualname),
                                     READONLY, nullptr};
PyMemberDef functionModule = {"__module__", T_OBJECT, offsetof(PyFunctionObject, func_module), 0, nullptr};
PyMemberDef functionDoc = {"__doc__", T_OBJECT, offsetof(PyFunctionObject, func_doc), 0, nullptr};
PyMemberDef className = {"__name__", T_OBJECT, offsetof(PyHeapTypeObject, ht_name), READONLY, nullptr};
PyMemberDef classQualifiedName = {"__qualname__", T_OBJECT, offsetof(PyHeapTypeObject, ht_qualname), READONLY,
                                  nullptr};

PyObject* ofFunction() {
  static constinit Lazy<PyObject*> field;
  return field.get([] { return PyDescr_NewMember(&PyFunction_Type, &functionName); });
}

PyObject* ofFunctionQualified() {
  static constinit Lazy<PyObject*> field;
  return field.get([] { return PyDescr_NewMember(&PyFunction_Type, &functionQualifiedName); });
}

PyObject* ofFunctionModule() {
  static constinit Lazy<PyObject*> field;
  return field.get([] { return PyDescr_NewMember(&PyFunction_Type, &functionModule); });
}

PyObject* ofFunctionDoc() {
  static constinit Lazy<PyObject*> field;
  return field.get([] { return PyDescr_NewMember(&PyFunction_Type, &functionDoc); });
}

PyObject* ofClass() {
  static constinit Lazy<PyObject*> field;
  return field.get([] { return PyDescr_NewMember(&PyType_Type, &className); });
}

PyObject* ofClassQualified() {
  static constinit Lazy<PyObject*> field;
  return field.get([] { return PyDescr_NewMember(&PyType_Type, &classQualifiedName); });
}

}  // namespace

PyObject* nameField(PyObject* object, std::string_view attribute) {
  const bool qualified = attribute == "__qualname__";
  if (!qualified && attribute != "__name__") return nullptr;
  if (PyFunction_Check(object)) return qualified ? ofFunctionQualified() : ofFunction();
  const bool heapClass =
      PyType_Check(object) &&
      PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_HEAPTYPE) &&
      !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_IMMUTABLETYPE);
  if (!heapClass) return nullptr;
  return qualified ? ofClassQualified() : ofClass();
}

PyObject* fieldBehind(PyObject* descriptor) {
  if (descriptor == nullptr || Py_TYPE(descriptor) != &PyGetSetDescr_Type ||
      PyDescr_TYPE(descriptor) != &PyFunction_Type) {
    return descriptor;
  }
  const std::string_view name = ascii(PyDescr_NAME(descriptor));
  if (name == "__module__") return ofFunctionModule();
  return name == "__doc__" ? ofFunctionDoc() : descriptor;
}

std::array<NamedField, 6> nameFields() {
  return {{{"function.__name__", ofFunction()},
           {"function.__qualname__", ofFunctionQualified()},
           {"function.__module__", ofFunctionModule()},
           {"function.__doc__", ofFunctionDoc()},
           {"class.__name__", ofClass()},
           {"class.__qualname__", ofClassQualified()}}};
}

}  // namespace kintsugi::pyapi
