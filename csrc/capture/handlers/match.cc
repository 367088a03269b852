// Structural pattern matching.
#include "capture/handlers/common.h"
#include "pyapi/functions.h"
#include "pyapi/names.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

// True if `item` was in the set already, or if hashing it failed: then an exception is pending.
bool seenBefore(PyObject* seen, PyObject* item) {
  return PySet_Contains(seen, item) != 0 || PySet_Add(seen, item) != 0;
}

// Empty without an exception if the subject has no such attribute.
pyapi::Ref<> attributeOf(PyObject* subject, PyObject* type, PyObject* name, PyObject* seen) {
  if (seenBefore(seen, name)) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R",
                   pyapi::typeName(reinterpret_cast<PyTypeObject*>(type)), name);
    }
    return nullptr;
  }
  auto attribute = pyapi::steal(PyObject_GetAttr(subject, name));
  if (!attribute && PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
    PyErr_Clear();
  }
  return attribute;
}

bool appendAttribute(PyObject* attributes, PyObject* subject, PyObject* type, PyObject* name,
                     PyObject* seen) {
  auto attribute = attributeOf(subject, type, name, seen);
  return attribute && PyList_Append(attributes, attribute.get()) == 0;
}

// The positional names of a class pattern: `__match_args__`, or none. For builtin types like int,
// `*matchSelf` is set: the pattern's argument is the subject itself.
pyapi::Ref<> matchArgsOf(PyObject* type, bool* matchSelf) {
  auto names = pyapi::steal(PyObject_GetAttrString(type, "__match_args__"));
  if (names) {
    if (PyTuple_CheckExact(names.get())) {
      return names;
    }
    PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)",
                 pyapi::typeName(reinterpret_cast<PyTypeObject*>(type)), pyapi::typeNameOf(names.get()));
    return nullptr;
  }
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
    return nullptr;
  }
  PyErr_Clear();
  *matchSelf = pyapi::matchesSelf(reinterpret_cast<PyTypeObject*>(type));
  return pyapi::steal(PyTuple_New(0));
}

bool matchPositional(PyObject* attributes, PyObject* subject, PyObject* type, Py_ssize_t count,
                     PyObject* seen) {
  bool matchSelf = false;
  auto names = matchArgsOf(type, &matchSelf);
  if (!names) {
    return false;
  }
  const Py_ssize_t allowed = matchSelf ? 1 : PyTuple_GET_SIZE(names.get());
  if (allowed < count) {
    PyErr_Format(PyExc_TypeError, "%s() accepts %d positional sub-pattern%s (%d given)",
                 pyapi::typeName(reinterpret_cast<PyTypeObject*>(type)), static_cast<int>(allowed),
                 allowed == 1 ? "" : "s", static_cast<int>(count));
    return false;
  }
  if (matchSelf) {
    return PyList_Append(attributes, subject) == 0;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    if (!PyUnicode_CheckExact(name)) {
      PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)",
                   pyapi::typeNameOf(name));
      return false;
    }
    if (!appendAttribute(attributes, subject, type, name, seen)) {
      return false;
    }
  }
  return true;
}

// The attributes that a class pattern asks for, as a tuple. Empty without an exception if the subject does
// not match.
pyapi::Ref<> classAttributes(PyObject* subject, PyObject* type, Py_ssize_t positional, PyObject* keywords) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a type");
    return nullptr;
  }
  if (PyObject_IsInstance(subject, type) <= 0) {
    return nullptr;
  }
  auto seen = pyapi::steal(PySet_New(nullptr));
  auto attributes = pyapi::steal(PyList_New(0));
  if (!seen || !attributes) {
    return nullptr;
  }
  if (positional > 0 && !matchPositional(attributes.get(), subject, type, positional, seen.get())) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); i++) {
    if (!appendAttribute(attributes.get(), subject, type, PyTuple_GET_ITEM(keywords, i), seen.get())) {
      return nullptr;
    }
  }
  return pyapi::steal(PyList_AsTuple(attributes.get()));
}

// The values of all keys, as a tuple; None if a key is missing. Calls `get`, because `__getitem__` of a
// defaultdict would add entries.
pyapi::Ref<> mappingValues(PyObject* mapping, PyObject* keys) {
  const Py_ssize_t count = PyTuple_GET_SIZE(keys);
  if (count == 0) {
    return pyapi::steal(PyTuple_New(0));
  }
  PyObject* method = nullptr;
  const bool unbound = pyapi::lookUpMethod(mapping, pyapi::names::get(), &method);
  auto get = pyapi::steal(method);
  auto seen = get ? pyapi::steal(PySet_New(nullptr)) : nullptr;
  auto missing =
      seen ? pyapi::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type))) : nullptr;
  auto values = missing ? pyapi::steal(PyTuple_New(count)) : nullptr;
  if (!values) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    if (seenBefore(seen.get(), key)) {
      if (PyErr_Occurred() == nullptr) {
        PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
      }
      return nullptr;
    }
    PyObject* arguments[] = {mapping, key, missing.get()};
    auto value = pyapi::steal(
        PyObject_Vectorcall(get.get(), unbound ? arguments : arguments + 1, unbound ? 3 : 2, nullptr));
    if (!value) {
      return nullptr;
    }
    if (value.get() == missing.get()) {
      return pyapi::newRef(Py_None);
    }
    PyTuple_SET_ITEM(values.get(), i, value.release());
  }
  return values;
}

}  // namespace

Flow getLen(Activation& act, const Instr&) {
  const Py_ssize_t length = PyObject_Size(top(act));
  return length < 0 ? Flow::kRaise : pushResult(act, PyLong_FromSsize_t(length));
}

Flow matchMapping(Activation& act, const Instr&) {
  return pushBool(act, PyType_HasFeature(Py_TYPE(top(act)), Py_TPFLAGS_MAPPING) != 0);
}

Flow matchSequence(Activation& act, const Instr&) {
  return pushBool(act, PyType_HasFeature(Py_TYPE(top(act)), Py_TPFLAGS_SEQUENCE) != 0);
}

// Stack: [subject, keys] becomes [subject, keys, values or None].
Flow matchKeys(Activation& act, const Instr&) {
  return pushResult(act, mappingValues(second(act), top(act)).release());
}

// Stack: [subject, class, keyword names] becomes [attributes or None].
Flow matchClass(Activation& act, const Instr& instr) {
  auto keywords = popRef(act);
  auto type = popRef(act);
  auto attributes = classAttributes(top(act), type.get(), static_cast<Py_ssize_t>(instr.arg), keywords.get());
  if (!attributes) {
    if (PyErr_Occurred() != nullptr) {
      return Flow::kRaise;
    }
    attributes = pyapi::newRef(Py_None);
  }
  PyObject* subject = top(act);
  top(act) = attributes.release();
  Py_DECREF(subject);
  return Flow::kNext;
}

}  // namespace kintsugi::capture::handlers
