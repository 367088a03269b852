#include "pyapi/name_fields.h"

#include <structmember.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <tuple>

#include "pyapi/lazy.h"
#include "pyapi/text.h"

namespace kintsugi::pyapi {

namespace {

enum Field : uint8_t {
  kFunctionName,
  kFunctionQualifiedName,
  kFunctionModule,
  kFunctionDoc,
  kClassName,
  kClassQualifiedName,
};

struct FieldRow {
  const char* text;
  PyTypeObject* type;
  PyMemberDef member;
};
constinit FieldRow g_fields[] = {
    {"function.__name__",
     &PyFunction_Type,
     {"__name__", T_OBJECT, offsetof(PyFunctionObject, func_name), READONLY, nullptr}},
    {"function.__qualname__",
     &PyFunction_Type,
     {"__qualname__", T_OBJECT, offsetof(PyFunctionObject, func_qualname), READONLY, nullptr}},
    {"function.__module__",
     &PyFunction_Type,
     {"__module__", T_OBJECT, offsetof(PyFunctionObject, func_module), 0, nullptr}},
    {"function.__doc__",
     &PyFunction_Type,
     {"__doc__", T_OBJECT, offsetof(PyFunctionObject, func_doc), 0, nullptr}},
    {"class.__name__",
     &PyType_Type,
     {"__name__", T_OBJECT, offsetof(PyHeapTypeObject, ht_name), READONLY, nullptr}},
    {"class.__qualname__",
     &PyType_Type,
     {"__qualname__", T_OBJECT, offsetof(PyHeapTypeObject, ht_qualname), READONLY, nullptr}},
};
static_assert(std::size(g_fields) == std::tuple_size_v<decltype(nameFields())>);

PyObject* descriptorOf(Field field) {
  static constinit std::array<Lazy<PyObject*>, std::size(g_fields)> made;
  return made[field].get(
      [field] { return PyDescr_NewMember(g_fields[field].type, &g_fields[field].member); });
}

}  // namespace

PyObject* nameField(PyObject* object, std::string_view attribute) {
  const bool qualified = attribute == "__qualname__";
  if (!qualified && attribute != "__name__") return nullptr;
  if (PyFunction_Check(object)) return descriptorOf(qualified ? kFunctionQualifiedName : kFunctionName);
  const bool heapClass =
      PyType_Check(object) &&
      PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_HEAPTYPE) &&
      !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_IMMUTABLETYPE);
  if (!heapClass) return nullptr;
  return descriptorOf(qualified ? kClassQualifiedName : kClassName);
}

PyObject* fieldBehind(PyObject* descriptor) {
  if (descriptor == nullptr || Py_TYPE(descriptor) != &PyGetSetDescr_Type ||
      PyDescr_TYPE(descriptor) != &PyFunction_Type) {
    return descriptor;
  }
  const std::string_view name = ascii(PyDescr_NAME(descriptor));
  if (name == "__module__") return descriptorOf(kFunctionModule);
  return name == "__doc__" ? descriptorOf(kFunctionDoc) : descriptor;
}

std::array<NamedField, 6> nameFields() {
  std::array<NamedField, std::size(g_fields)> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = {g_fields[i].text, descriptorOf(static_cast<Field>(i))};
  return all;
}

}  // namespace kintsugi::pyapi
