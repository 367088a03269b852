// Recorder: attribute writes (DESIGN rule 5).
#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/shown.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"
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
  if (auto stored = storeInClass(*this, shadow, object, name, value, real)) return *stored;
  if (auto stored = storeOpen(*this, shadow, object, name, value, real)) return *stored;
  if (!shadow.isVirtual()) noteRename(*this, object, name);
  guardType(shadow, object);
  if (PyType_Check(object) || shadow.isValue()) {
    setter = Py_None;
    return live();
  }
  guardTypeVersion(type);
  PyObject* hook = pyapi::lookUpInType(type, hookName);
  if (hook != nullptr && PyFunction_Check(hook)) {
    setter = hook;
    return live();
  }
  if (!pyapi::setsAttributesPlainly(type) && !PyModule_Check(object) &&
      hook != pyapi::lookUpInType(&PyBaseObject_Type, hookName)) {
    setter = Py_None;
    return live();
  }
  return storeGeneric(shadow, object, name, value, real, setter);
}

namespace {

// exception.__traceback__ = ... of one that is made again: its recipe reads it from the object.
bool storesLink(Recorder& rec, Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                PyObject* real) {
  if (!shadow.isVirtual()) return false;
  Virtual& v = rec.virtualOf(shadow);
  if (v.kind != VirtualKind::kException || v.value != ir::kNone || PyExceptionInstance_Check(object) == 0)
    return false;
  const bool known = real == Py_None ? value.isConst() : rec.knownObject(real).has_value();
  for (const char* link : {"__traceback__", "__context__", "__cause__"}) {
    if (PyUnicode_CompareWithASCIIString(name, link) == 0 && known) {
      if (link[2] == 'c' && link[3] == 'o') v.index = 0;  // no longer what is handled outside
      rec.touched();
      return true;
    }
  }
  return false;
}

}  // namespace

// object.__setattr__: data descriptors of the type first, then the instance dict.
bool Recorder::storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                            PyObject*& setter) {
  if (shadow.isVirtual() && virtualOf(shadow).kind == VirtualKind::kFunction)
    return storeFunction(shadow, object, name, value, real, setter);
  PyObject* d = typeEntry(*this, Py_TYPE(object), name).value;
  if (!live()) return false;
  bool slot = d != nullptr && isSlot(d);
  if (slot && !shadow.isVirtual()) {
    ir::SourceId source = sourceOf(shadow, object);
    if (!emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name)) return false;
    pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
    PyDict_SetItem(makeOverlay(object).attrs.get(), name, encoded.get());
    return live();
  }
  if (d != nullptr && !slot && pyapi::hasDescriptorSet(d)) {
    if (storesLink(*this, shadow, object, name, value, real)) return live();
    if (isProperty(d)) {
      PyObject* fset = reinterpret_cast<PyObject**>(d)[3];  // prop_set
      setter = fset != nullptr && PyFunction_Check(fset) ? fset : Py_None;
      if (Py_TYPE(d) != &PyProperty_Type) guardTypeVersion(Py_TYPE(d));
      return live();
    }
    PyObject* written = pythonMethod(d, "__set__");
    if (written != nullptr) guardTypeVersion(Py_TYPE(d));
    setter = written != nullptr ? written : Py_None;
    return live();
  }
  if (shadow.isVirtual()) {
    Virtual& v = virtualOf(shadow);
    const bool attributes = v.kind == VirtualKind::kInstance || (v.kind == VirtualKind::kException && !slot);
    if (!attributes) {
      abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
      return false;
    }
    if (v.value != ir::kNone && !emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
      return false;
    return setAttrShadow(virtualOf(shadow), name, value);
  }
  PyObject** dict = pyapi::materializedDictSlot(object);
  if (dict == nullptr) {
    setter = Py_None;
    return live();
  }
  ir::SourceId source = sourceOf(shadow, object);
  if (!emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name)) return false;
  if (*dict == nullptr) {
    // The dict comes into being with this write; read it once it is there.
    pyapi::Ref<> made = pyapi::steal(PyObject_GenericGetDict(object, nullptr));
    guard(guard::GuardKind::kNoDict, source);
    Overlay& overlay = makeOverlay(made.get());
    overlay.dirty = true;
    pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
    PyDict_SetItem(overlay.entries.get(), name, encoded.get());
    return live();
  }
  readSource(SourceKind::kDict, source, nullptr, 0, *dict);  // it must stay another than all that were read
  return live() && noteWrite(*dict, name, value);
}

// An attribute of a function made here (functools.wraps and other decorators).
bool Recorder::storeFunction(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                             PyObject*& setter) {
  static PyObject* annotations = PyUnicode_InternFromString("__annotations__");
  Virtual& v = virtualOf(shadow);
  if (isFunctionName(name)) {  // these are constants wherever they are read
    if (!tryPinDeep(value, real)) {
      if (live()) abort(diag::Code::KTG0303, {PyUnicode_AsUTF8(name)});
      return false;
    }
    if (v.value != ir::kNone) setter = Py_None;
    v.renamed = true;
    touched();
    return live();
  }
  static PyObject* parameters = PyUnicode_InternFromString("__type_params__");
  if (PyUnicode_Compare(name, parameters) == 0 && isEmptyTuple(real)) {  // none, and it has none
    const pyapi::Ref<> old = pyapi::steal(PyObject_GetAttr(object, name));
    if (!old) PyErr_Clear();
    if (isEmptyTuple(old.get()) && tryPinDeep(value, real)) return live();
  }
  bool isAnnotations = PyUnicode_Compare(name, annotations) == 0;
  PyObject* d = pyapi::lookUpInType(&PyFunction_Type, name);
  if (v.exposed || (!isAnnotations && d != nullptr && pyapi::hasDescriptorSet(d))) {
    abort(diag::Code::KTG0303, {PyUnicode_AsUTF8(name)});
    return false;
  }
  if (v.value != ir::kNone && !emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
    return false;
  touched();
  return isAnnotations ? setEntry(virtualOf(shadow), name, value)
                       : setAttrShadow(virtualOf(shadow), name, value);
}

// The overlay of an old dict learns an entry that an effect has been written for.
bool Recorder::noteWrite(PyObject* dict, PyObject* key, Shadow value) {
  pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
  makeOverlay(dict).written(dict, key, encoded.get());
  return live();
}

// `del object.name`. `deleter`: a Python function that will be entered (__delattr__, a property's,
// __delete__); null: the caller executes it.
bool Recorder::planDelete(Shadow shadow, PyObject* object, PyObject* name, PyObject*& deleter) {
  static PyObject* hookName = PyUnicode_InternFromString("__delattr__");
  PyTypeObject* type = Py_TYPE(object);
  PyObject* hook = pyapi::lookUpInType(type, hookName);
  deleter = nullptr;
  const bool generic =
      hook == pyapi::lookUpInType(&PyBaseObject_Type, hookName) || pyapi::setsAttributesPlainly(type);
  if (auto deleted = storeOpen(*this, shadow, object, name, Shadow::null(), nullptr)) return *deleted;
  if (PyType_Check(object) || shadow.isValue() || (!generic && !PyFunction_Check(hook))) {
    abort(diag::Code::KTG0303, {pyapi::typeName(type)});
    return false;
  }
  if (PyFunction_Check(hook)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    deleter = hook;
    return live();
  }
  PyObject* d = typeEntry(*this, type, name).value;
  if (!live()) return false;
  PyObject* written = nullptr;
  if (d != nullptr && isProperty(d)) {
    PyObject* fdel = reinterpret_cast<PyObject**>(d)[4];  // prop_del
    if (fdel != nullptr && PyFunction_Check(fdel)) written = fdel;
  } else if (d != nullptr) {
    written = pythonMethod(d, "__delete__");
  }
  if (written == nullptr) return deleteGeneric(shadow, object, name);
  if (Py_TYPE(d) != &PyProperty_Type) guardTypeVersion(Py_TYPE(d));
  guardType(shadow, object);
  guardTypeVersion(type);
  deleter = written;
  return live();
}

// object.__delattr__
bool Recorder::deleteGeneric(Shadow shadow, PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* d = typeEntry(*this, type, name).value;
  if (!live()) return false;
  if (d != nullptr && pyapi::hasDescriptorSet(d)) {
    abort(diag::Code::KTG0303, {pyapi::typeName(type)});
    return false;
  }
  guardType(shadow, object);
  guardTypeVersion(type);
  if (shadow.isVirtual()) {
    Virtual& v = virtualOf(shadow);
    if (v.kind != VirtualKind::kInstance) {
      abort(diag::Code::KTG0303, {pyapi::typeName(type)});
      return false;
    }
    if (PyDict_Contains(v.attrs.get(), name) != 1) return live();  // raises
    if (v.value != ir::kNone && !emitEffect(Op::kDelAttr, {{shadow, object}}, name)) return false;
    PyDict_DelItem(virtualOf(shadow).attrs.get(), name);
    touched();
    return true;
  }
  PyObject** slot = pyapi::materializedDictSlot(object);
  if (slot == nullptr || *slot == nullptr) return live();
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
  return live();
}

}  // namespace kintsugi::capture
