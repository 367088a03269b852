#include "pyapi/classes.h"

#include <utility>
#include <vector>

#include "pyapi/lazy.h"
#include "pyapi/types.h"

namespace kintsugi::pyapi {

namespace {

PyObject* hookName() {
  static PyObject* name = PyUnicode_InternFromString("__init_subclass__");
  return name;
}

PyObject* ofObject() { return _PyType_Lookup(&PyBaseObject_Type, hookName()); }

// --- Making a class without calling its bases' `__init_subclass__`. type.__new__ looks `__init_subclass__`
// up behind the new class in its MRO. So the class is made with a metaclass of ours, which puts a shield
// class there whose method does nothing. Both are removed before anybody sees the class.

PyObject* returnNone(PyObject*, PyObject*, PyObject*) { Py_RETURN_NONE; }

PyObject* shield() {
  static PyMethodDef methods[] = {
      {"__init_subclass__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(returnNone)),
       METH_CLASS | METH_VARARGS | METH_KEYWORDS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, nullptr}};
  static PyType_Spec spec = {"kintsugi.Shield", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
  static constinit Lazy<PyObject*> madeSlot;
  PyObject* made = madeSlot.get([] { return PyType_FromSpec(&spec); });
  return made;
}

PyObject* shieldedOrder(PyObject* cls, PyObject*) {
  Ref<> order = steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "mro", "O", cls));
  if (!order || PyList_Insert(order.get(), 1, shield()) < 0) return nullptr;
  return order.release();
}

PyTypeObject* shieldedMeta() {
  static PyMethodDef methods[] = {{"mro", shieldedOrder, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, nullptr}};
  static PyType_Spec spec = {"kintsugi.ShieldedMeta", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  static constinit Lazy<PyObject*> madeSlot;
  PyObject* made =
      madeSlot.get([] { return PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(&PyType_Type)); });
  return reinterpret_cast<PyTypeObject*>(made);
}

// Returns another number whenever something that look-up sees in the class or its bases has changed.
PyObject* versionOf(PyObject*, PyObject* cls) {
  static long long none = 0;
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  _PyType_Lookup(type, hookName());  // assigns a version
  const unsigned version = PyType_Check(cls) ? validTypeVersion(type) : 0;
  return PyLong_FromLongLong(version != 0 ? static_cast<long long>(version) : --none);
}

// Makes it an ordinary class.
bool unshield(PyObject* cls, PyObject* bases) {
  PyTypeObject* meta = Py_TYPE(cls);
  Py_INCREF(&PyType_Type);
  Py_SET_TYPE(cls, &PyType_Type);
  Py_DECREF(meta);
  return PyObject_SetAttrString(cls, "__bases__", bases) == 0;  // computes the MRO again
}

}  // namespace

PyObject* nameHook(PyObject* value) {
  static PyObject* name = PyUnicode_InternFromString("__set_name__");
  if (Py_TYPE(value) == &PyProperty_Type) return nullptr;  // keeps the name itself, and calls no code
  return _PyType_Lookup(Py_TYPE(value), name);
}

PyObject* classVersion() {
  static PyMethodDef definition = {"class_version", versionOf, METH_O, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

PyObject* subclassHook(PyTypeObject* type) {
  PyObject* order = type->tp_mro;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(order); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
    PyObject* found = PyDict_GetItemWithError(dictOf(base), hookName());
    if (found != nullptr) return found == ofObject() ? nullptr : found;
  }
  return nullptr;
}

Ref<> newClass(PyObject* name, PyObject* bases, PyObject* space) {
  bool basesHaveHook = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    basesHaveHook = basesHaveHook || _PyType_Lookup(base, hookName()) != ofObject();
  }
  // A value with a `__set_name__` is set after the class is made; None keeps its place in the namespace until
  // then.
  Ref<> quiet;
  std::vector<std::pair<PyObject*, PyObject*>> later;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(space, &at, &key, &value)) {
    if (nameHook(value) != nullptr) later.emplace_back(key, value);
  }
  if (!later.empty()) {
    quiet = steal(PyDict_Copy(space));
    for (const auto& [hooked, ignored] : later) {
      if (!quiet || PyDict_SetItem(quiet.get(), hooked, Py_None) < 0) return {};
    }
  }
  Ref<> args = steal(PyTuple_Pack(3, name, bases, quiet ? quiet.get() : space));
  if (!args) return {};
  PyTypeObject* meta = basesHaveHook ? shieldedMeta() : &PyType_Type;
  if (meta == nullptr) return {};
  Ref<> cls = steal(PyType_Type.tp_new(meta, args.get(), nullptr));
  if (!cls || (basesHaveHook && !unshield(cls.get(), bases))) return {};
  for (const auto& [hooked, real] : later) {
    if (PyObject_SetAttr(cls.get(), hooked, real) < 0) return {};
  }
  return cls;
}

namespace {

bool isWrapper(PyObject* object) { return Py_TYPE(object) == &PyWrapperDescr_Type; }

// True if both wrap the same slot function, as object.__getattribute__ and dict.__getattribute__ may.
bool wrapsTheSame(PyObject* a, PyObject* b) {
  auto wrapped = [](PyObject* o) { return reinterpret_cast<PyWrapperDescrObject*>(o)->d_wrapped; };
  return isWrapper(a) && isWrapper(b) && wrapped(a) == wrapped(b);
}

}  // namespace

bool isMethodOfC(PyObject* method) { return Py_TYPE(method) == &PyMethodDescr_Type || isWrapper(method); }

bool isOverriddenInC(PyObject* method, PyTypeObject* type) {
  if (!isMethodOfC(method)) {
    return false;
  }
  PyTypeObject* owner = PyDescr_TYPE(method);
  if (type == owner || !PyType_IsSubtype(type, owner)) {
    return false;
  }
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(type->tp_mro); ++k) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, k));
    if (base == owner) {
      return false;
    }
    const bool inC = !PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE);
    PyObject* own = inC ? PyDict_GetItemWithError(dictOf(base), PyDescr_NAME(method)) : nullptr;
    if (own != nullptr && !wrapsTheSame(own, method)) {
      return true;
    }
  }
  return false;
}

bool isOfAnotherClass(PyObject* method, PyObject* self) {
  if (Py_TYPE(method) == &PyClassMethodDescr_Type) {
    return self == nullptr || !PyType_Check(self) ||
           !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self), PyDescr_TYPE(method));
  }
  return isMethodOfC(method) && (self == nullptr || !PyObject_TypeCheck(self, PyDescr_TYPE(method)));
}

}  // namespace kintsugi::pyapi
