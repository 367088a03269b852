#include "pyapi/callable_name.h"

#include "pyapi/errors.h"
#include "pyapi/ref.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::pyapi {

namespace {

// True if reading the attribute runs no Python code: the class has data, or a C descriptor, under the name.
bool isReadByC(PyObject* found) {
  return found == nullptr || PyUnicode_Check(found) || Py_IS_TYPE(found, &PyGetSetDescr_Type) ||
         Py_IS_TYPE(found, &PyMemberDescr_Type);
}

// Reads a text attribute without calling `__getattribute__`, `__getattr__` and properties; null if there is
// no str.
Ref<> quietText(PyObject* object, const char* attribute) {
  const Ref<> name = steal(PyUnicode_InternFromString(attribute));
  if (!name || !isReadByC(lookUpInType(Py_TYPE(object), name.get()))) return {};
  Ref<> text = steal(PyType_Check(object) ? PyType_Type.tp_getattro(object, name.get())
                                          : PyObject_GenericGetAttr(object, name.get()));
  return text && PyUnicode_Check(text.get()) ? std::move(text) : Ref<>();
}

}  // namespace

std::string callableName(PyObject* callable) {
  const PendingErrorScope kept;
  while (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  Ref<> name = quietText(callable, "__name__");
  const bool bare = self != nullptr && !PyModule_Check(self) && !PyType_Check(self) && name &&
                    lookUpInType(Py_TYPE(self), name.get()) == nullptr;
  if (!bare) {
    if (Ref<> qualified = quietText(callable, "__qualname__")) name = std::move(qualified);
  }
  PyErr_Clear();
  return name ? utf8(name.get()) : typeNameOf(callable);
}

}  // namespace kintsugi::pyapi
