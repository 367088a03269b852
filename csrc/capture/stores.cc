// Stores: attribute writes (rule 5 in docs/internals/capture.md).
#include "capture/stores.h"

#include <algorithm>

#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/recorder_tables.h"
#include "capture/shown.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::capture {

using guard::SourceKind;
using ir::Op;

// Decides what `object.name = value` does and writes it into the trace. `setter` is a Python function that
// will be entered; None if the write is unknown and has to be a step; null for an ordinary write, which the
// caller executes.
bool Stores::planStore(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                       PyObject*& setter) {
  static PyObject* hookName = PyUnicode_InternFromString("__setattr__");
  PyTypeObject* type = Py_TYPE(object);
  setter = nullptr;
  if (auto stored = storeInClass(rec_, shadow, object, name, value, real)) return *stored;
  if (auto stored = storeOpen(rec_, shadow, object, name, value, real)) return *stored;
  if (!shadow.isVirtual()) noteRename(rec_, object, name);
  rec_.guards.guardType(shadow, object);
  if (PyType_Check(object) || shadow.isValue()) {
    setter = Py_None;
    return rec_.live();
  }
  rec_.guards.guardTypeVersion(type);
  PyObject* hook = pyapi::lookUpInType(type, hookName);
  if (hook != nullptr && PyFunction_Check(hook)) {
    setter = hook;
    return rec_.live();
  }
  if (!pyapi::setsAttributesPlainly(type) && !PyModule_Check(object) &&
      hook != pyapi::lookUpInType(&PyBaseObject_Type, hookName)) {
    setter = Py_None;
    return rec_.live();
  }
  return storeGeneric(shadow, object, name, value, real, setter);
}

namespace {

// For `exception.__traceback__ = ...` and the like. If the trace can rebuild the exception, there is nothing
// to emit: its recipe reads the field from the real object.
bool storesLink(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                PyObject* real) {
  if (!shadow.isVirtual()) return false;
  Virtual& v = rec.objects.virtualOf(shadow);
  if (v.kind != VirtualKind::kException || v.value != ir::kNone || PyExceptionInstance_Check(object) == 0)
    return false;
  const bool known = real == Py_None ? value.isConst() : rec.objects.knownObject(real).has_value();
  for (const char* link : {"__traceback__", "__context__", "__cause__"}) {
    if (PyUnicode_CompareWithASCIIString(name, link) == 0 && known) {
      if (link[2] == 'c' && link[3] == 'o') v.index = 0;  // `__context__` was set by the program
      rec.objects.noteChange();
      return true;
    }
  }
  return false;
}

}  // namespace

// What object.__setattr__ does: data descriptors of the type come first, then the instance dict.
bool Stores::storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                          PyObject*& setter) {
  if (shadow.isVirtual() && rec_.objects.virtualOf(shadow).kind == VirtualKind::kFunction)
    return storeFunction(shadow, object, name, value, real, setter);
  PyObject* d = typeEntry(rec_, Py_TYPE(object), name).value;
  if (!rec_.live()) return false;
  bool slot = d != nullptr && isSlot(d);
  if (slot && !shadow.isVirtual()) {
    ir::SourceId source = rec_.guards.sourceOf(shadow, object);
    if (!rec_.heap.emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name))
      return false;
    rec_.objects.makeOverlay(object).attrs.note(name, value, real);
    return rec_.live();
  }
  if (d != nullptr && !slot && pyapi::hasDescriptorSet(d)) {
    if (storesLink(rec_, shadow, object, name, value, real)) return rec_.live();
    if (isProperty(d)) {
      PyObject* fset = reinterpret_cast<PyObject**>(d)[3];  // propertyobject: prop_set
      setter = fset != nullptr && PyFunction_Check(fset) ? fset : Py_None;
      if (Py_TYPE(d) != &PyProperty_Type) rec_.guards.guardTypeVersion(Py_TYPE(d));
      return rec_.live();
    }
    PyObject* written = pythonMethod(d, "__set__");
    if (written != nullptr) rec_.guards.guardTypeVersion(Py_TYPE(d));
    setter = written != nullptr ? written : Py_None;
    return rec_.live();
  }
  if (shadow.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(shadow);
    const bool attributes = v.kind == VirtualKind::kInstance || (v.kind == VirtualKind::kException && !slot);
    if (!attributes) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
      return false;
    }
    if (v.value != ir::kNone && !rec_.heap.emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
      return false;
    return rec_.objects.setAttrShadow(rec_.objects.virtualOf(shadow), name, value);
  }
  PyObject** dict = pyapi::materializedDictSlot(object);
  if (dict == nullptr) {
    setter = Py_None;
    return rec_.live();
  }
  ir::SourceId source = rec_.guards.sourceOf(shadow, object);
  if (!rec_.heap.emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name))
    return false;
  if (*dict == nullptr) {
    // This write makes the dict. A guard says that there was none; later reads find the entry in the overlay.
    pyapi::Ref<> made = pyapi::steal(PyObject_GenericGetDict(object, nullptr));
    rec_.guards.guard(guard::GuardKind::kNoDict, source);
    Overlay& overlay = rec_.objects.makeOverlay(made.get());
    overlay.dirty = true;
    overlay.entries.note(name, value, real);
    return rec_.live();
  }
  rec_.guards.readSource(SourceKind::kDict, source, nullptr, 0,
                         *dict);  // adds guards that tell it from other dicts
  return rec_.live() && rec_.heap.noteWrite(*dict, name, value, real);
}

namespace {

// True if a frame of the function runs or waits: it goes on with the code that it has begun with.
bool hasFrame(RecordContext& rec, PyObject* function) {
  const auto runs = [function](const auto& frame) { return frame->function.get() == function; };
  if (std::ranges::any_of(rec.tables.frames.all(), runs)) return true;
  return std::ranges::any_of(rec.tables.virtuals.all(),
                             [&](const auto& v) { return v->frame && runs(v->frame); });
}

// `function.__code__ = code` of a function that nobody outside of the trace has: it is made with that code.
bool storeCode(RecordContext& rec, Virtual& v, Shadow value, PyObject* real) {
  if (v.exposed || v.value != ir::kNone || !value.isConst() || !PyCode_Check(real) ||
      hasFrame(rec, v.object.get())) {
    rec.abort(diag::Code::KTG0303, {"__code__"});
    return false;
  }
  v.renamed = true;  // its documentation is not that of the new code
  rec.objects.noteChange();
  return rec.live();
}

// `__annotations__`, or `__annotate__` of CPython 3.14 and later. A dict replaces what makes one, a function
// replaces the dict.
bool setAnnotations(RecordContext& rec, Virtual& v, PyObject* name, Shadow value, PyObject* real) {
  const bool later = PyUnicode_CompareWithASCIIString(name, "__annotate__") == 0;
  PyObject* other = PyDict_GetItemString(v.entries.get(), later ? "__annotations__" : "__annotate__");
  if (other != nullptr && (!later || real != Py_None))
    PyDict_DelItemString(v.entries.get(), later ? "__annotations__" : "__annotate__");
  return rec.objects.setEntry(v, name, value);
}

}  // namespace

// An attribute of a function that the trace has made (functools.wraps and other decorators).
bool Stores::storeFunction(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                           PyObject*& setter) {
  static PyObject* annotations = PyUnicode_InternFromString("__annotations__");
  Virtual& v = rec_.objects.virtualOf(shadow);
  if (PyUnicode_CompareWithASCIIString(name, "__code__") == 0) return storeCode(rec_, v, value, real);
  if (isFunctionName(name)) {  // reading one gives a constant
    if (!rec_.guards.tryPinDeep(value, real)) {
      if (rec_.live()) rec_.abort(diag::Code::KTG0303, {PyUnicode_AsUTF8(name)});
      return false;
    }
    if (v.value != ir::kNone) setter = Py_None;
    v.renamed = true;
    rec_.objects.noteChange();
    return rec_.live();
  }
  static PyObject* parameters = PyUnicode_InternFromString("__type_params__");
  // An empty tuple replaces an empty one.
  if (PyUnicode_Compare(name, parameters) == 0 && isEmptyTuple(real)) {
    const pyapi::Ref<> old = pyapi::steal(PyObject_GetAttr(object, name));
    if (!old) PyErr_Clear();
    if (isEmptyTuple(old.get()) && rec_.guards.tryPinDeep(value, real)) return rec_.live();
  }
  PyObject* d = pyapi::lookUpInType(&PyFunction_Type, name);
  const bool described = d != nullptr && pyapi::hasDescriptorSet(d);
  bool isAnnotations = PyUnicode_Compare(name, annotations) == 0;
  if (described && PyUnicode_CompareWithASCIIString(name, "__annotate__") == 0 &&
      (real == Py_None || PyFunction_Check(real))) {
    rec_.guards.guardType(value, real);
    isAnnotations = true;
  }
  if (v.exposed || (!isAnnotations && described)) {
    rec_.abort(diag::Code::KTG0303, {PyUnicode_AsUTF8(name)});
    return false;
  }
  if (v.value != ir::kNone && !rec_.heap.emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
    return false;
  rec_.objects.noteChange();
  if (isAnnotations) return setAnnotations(rec_, rec_.objects.virtualOf(shadow), name, value, real);
  return rec_.objects.setAttrShadow(rec_.objects.virtualOf(shadow), name, value);
}

// Decides what `del object.name` does. `deleter` is a Python function that will be entered (__delattr__,
// __delete__, a property's); if it is null, the caller executes the instruction.
bool Stores::planDelete(Shadow shadow, PyObject* object, PyObject* name, PyObject*& deleter) {
  static PyObject* hookName = PyUnicode_InternFromString("__delattr__");
  PyTypeObject* type = Py_TYPE(object);
  PyObject* hook = pyapi::lookUpInType(type, hookName);
  deleter = nullptr;
  const bool generic =
      hook == pyapi::lookUpInType(&PyBaseObject_Type, hookName) || pyapi::setsAttributesPlainly(type);
  if (auto deleted = storeOpen(rec_, shadow, object, name, Shadow::null(), nullptr)) return *deleted;
  if (PyType_Check(object) || shadow.isValue() || (!generic && !PyFunction_Check(hook))) {
    rec_.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
    return false;
  }
  if (PyFunction_Check(hook)) {
    rec_.guards.guardType(shadow, object);
    rec_.guards.guardTypeVersion(type);
    deleter = hook;
    return rec_.live();
  }
  PyObject* d = typeEntry(rec_, type, name).value;
  if (!rec_.live()) return false;
  PyObject* written = nullptr;
  if (d != nullptr && isProperty(d)) {
    PyObject* fdel = reinterpret_cast<PyObject**>(d)[4];  // propertyobject: prop_del
    if (fdel != nullptr && PyFunction_Check(fdel)) written = fdel;
  } else if (d != nullptr) {
    written = pythonMethod(d, "__delete__");
  }
  if (written == nullptr) return deleteGeneric(shadow, object, name);
  if (Py_TYPE(d) != &PyProperty_Type) rec_.guards.guardTypeVersion(Py_TYPE(d));
  rec_.guards.guardType(shadow, object);
  rec_.guards.guardTypeVersion(type);
  deleter = written;
  return rec_.live();
}

// What object.__delattr__ does.
bool Stores::deleteGeneric(Shadow shadow, PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* d = typeEntry(rec_, type, name).value;
  if (!rec_.live()) return false;
  if (d != nullptr && pyapi::hasDescriptorSet(d)) {
    rec_.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
    return false;
  }
  rec_.guards.guardType(shadow, object);
  rec_.guards.guardTypeVersion(type);
  if (shadow.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(shadow);
    if (v.kind != VirtualKind::kInstance) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
      return false;
    }
    if (PyDict_Contains(v.attrs.get(), name) != 1) return rec_.live();  // the run raises AttributeError
    if (v.value != ir::kNone && !rec_.heap.emitEffect(Op::kDelAttr, {{shadow, object}}, name)) return false;
    PyDict_DelItem(rec_.objects.virtualOf(shadow).attrs.get(), name);
    rec_.objects.noteChange();
    return true;
  }
  PyObject** slot = pyapi::materializedDictSlot(object);
  if (slot == nullptr || *slot == nullptr) return rec_.live();
  ir::SourceId source = rec_.guards.sourceOf(shadow, object);
  Shadow dictShadow = rec_.guards.readSource(SourceKind::kDict, source, nullptr, 0, *slot);
  PyObject* value = PyDict_GetItemWithError(*slot, name);
  if (value == nullptr) return rec_.heap.lacksKey(dictShadow, *slot, name);
  rec_.objects.dictEntry(dictShadow, *slot, name, value);  // guards that the attribute exists
  if (!rec_.heap.emitEffect(Op::kDelAttr, {{Shadow::source(source), object}}, name)) return false;
  return rec_.heap.noteDelete(*slot, name);
}

}  // namespace kintsugi::capture
