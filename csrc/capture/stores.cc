// Recorder: attribute writes (DESIGN rule 5).
#include "capture/attributes.h"
#include "support/check.h"

namespace kintsugi::capture {

using guard::SourceKind;
using ir::Op;

// Decides what `object.name = value` does and writes it into the trace. `setter`: a Python function that will
// be entered; None: unknown, to be done by a step; null: an ordinary write, which the caller executes.
bool Recorder::planStore(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                         PyObject*& setter) {
  static PyObject* hookName = PyUnicode_InternFromString("__setattr__");
  PyTypeObject* type = Py_TYPE(object);
  setter = nullptr;
  guardType(shadow, object);
  if (PyType_Check(object) || shadow.isValue()) {
    setter = Py_None;
    return live_;
  }
  guardTypeVersion(type);
  PyObject* hook = _PyType_Lookup(type, hookName);
  if (hook != nullptr && PyFunction_Check(hook)) {
    setter = hook;
    return live_;
  }
  if (type->tp_setattro != PyObject_GenericSetAttr && !PyModule_Check(object) &&
      hook != _PyType_Lookup(&PyBaseObject_Type, hookName)) {
    setter = Py_None;
    return live_;
  }
  return storeGeneric(shadow, object, name, value, real, setter);
}

// object.__setattr__: data descriptors of the type first, then the instance dict.
bool Recorder::storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                            PyObject*& setter) {
  PyObject* d = _PyType_Lookup(Py_TYPE(object), name);
  bool slot = d != nullptr && isSlot(d);
  if (slot && !shadow.isVirtual()) {
    ir::SourceId source = sourceOf(shadow, object);
    if (!emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name)) return false;
    pyapi::Ref<> encoded = pyapi::steal(encode(value));
    PyDict_SetItem(makeOverlay(object).attrs.get(), name, encoded.get());
    return live_;
  }
  if (d != nullptr && !slot && Py_TYPE(d)->tp_descr_set != nullptr) {
    if (Py_TYPE(d) == &PyProperty_Type) {
      PyObject* fset = reinterpret_cast<PyObject**>(d)[3];  // prop_set
      setter = fset != nullptr && PyFunction_Check(fset) ? fset : Py_None;
      return live_;
    }
    setter = Py_None;
    return live_;
  }
  if (shadow.isVirtual()) {
    Virtual& v = virtualOf(shadow);
    if (v.kind != VirtualKind::kInstance) {
      abort(diag::Code::KTG0303, {Py_TYPE(object)->tp_name});
      return false;
    }
    if (v.value != ir::kNone && !emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
      return false;
    return setAttrShadow(virtualOf(shadow), name, value);
  }
  PyObject** dict = _PyObject_GetDictPtr(object);
  if (dict == nullptr) {
    setter = Py_None;
    return live_;
  }
  ir::SourceId source = sourceOf(shadow, object);
  if (!emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name)) return false;
  if (*dict == nullptr) {
    // The dict comes into being with this write; read it once it is there.
    pyapi::Ref<> made = pyapi::steal(PyObject_GenericGetDict(object, nullptr));
    guard(guard::GuardKind::kNoDict, source);
    Overlay& overlay = makeOverlay(made.get());
    overlay.dirty = true;
    pyapi::Ref<> encoded = pyapi::steal(encode(value));
    PyDict_SetItem(overlay.entries.get(), name, encoded.get());
    return live_;
  }
  return noteWrite(readSource(SourceKind::kDict, source, nullptr, 0, *dict), *dict, name, value);
}

// The overlay of an old dict learns an entry that an effect has been written for.
bool Recorder::noteWrite(Shadow dictShadow, PyObject* dict, PyObject* key, Shadow value) {
  bool had = PyDict_Contains(dict, key) == 1;
  Overlay& overlay = makeOverlay(dict);
  (void)dictShadow;
  if (!overlay.added(key) && !had) overlay.lengthUnknown = true;
  pyapi::Ref<> encoded = pyapi::steal(encode(value));
  PyDict_SetItem(overlay.entries.get(), key, encoded.get());
  return live_;
}

bool Recorder::planDelete(Shadow shadow, PyObject* object, PyObject* name) {
  static PyObject* hookName = PyUnicode_InternFromString("__delattr__");
  PyTypeObject* type = Py_TYPE(object);
  if (_PyType_Lookup(type, hookName) != _PyType_Lookup(&PyBaseObject_Type, hookName) ||
      PyType_Check(object)) {
    abort(diag::Code::KTG0303, {type->tp_name});
    return false;
  }
  PyObject* d = _PyType_Lookup(type, name);
  if (d != nullptr && Py_TYPE(d)->tp_descr_set != nullptr) {
    abort(diag::Code::KTG0303, {type->tp_name});
    return false;
  }
  guardType(shadow, object);
  guardTypeVersion(type);
  if (shadow.isVirtual()) {
    Virtual& v = virtualOf(shadow);
    if (v.kind != VirtualKind::kInstance || v.value != ir::kNone) {
      abort(diag::Code::KTG0303, {type->tp_name});
      return false;
    }
    if (PyDict_DelItem(v.attrs.get(), name) < 0) PyErr_Clear();
    touched();
    return true;
  }
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (slot == nullptr || *slot == nullptr) return live_;
  ir::SourceId source = sourceOf(shadow, object);
  Shadow dictShadow = readSource(SourceKind::kDict, source, nullptr, 0, *slot);
  PyObject* value = PyDict_GetItemWithError(*slot, name);
  if (value == nullptr) return lacksKey(dictShadow, *slot, name);
  dictEntry(dictShadow, *slot, name, value);  // it was there
  if (!emitEffect(Op::kDelAttr, {{Shadow::source(source), object}}, name)) return false;
  return noteDelete(*slot, name);
}

bool Recorder::noteDelete(PyObject* dict, PyObject* key) {
  Overlay& overlay = makeOverlay(dict);
  if (overlay.added(key)) PyDict_DelItem(overlay.entries.get(), key);
  PyErr_Clear();
  PyDict_SetItem(overlay.deletedKeys(), key, Py_True);
  --overlay.grown;
  return live_;
}

}  // namespace kintsugi::capture
