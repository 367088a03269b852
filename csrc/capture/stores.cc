// Stores: attribute writes (rule 5 in docs/internals/capture.md).
#include "capture/stores.h"

#include <algorithm>

#include "capture/plain_objects.h"
#include "capture/special_methods.h"
#include "pyapi/object_layout.h"
#include "pyapi/text.h"
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
  if (auto stored = classes_.storeInClass(shadow, object, name, value, real)) return *stored;
  if (auto stored = classes_.storeOpen(shadow, object, name, value, real)) return *stored;
  if (!shadow.isVirtual()) classes_.noteRename(object, name);
  guards_.guardType(shadow, object);
  if (PyType_Check(object) || shadow.isValue()) {
    setter = Py_None;
    return breaks_.isLive();
  }
  pins_.guardTypeVersion(type);
  PyObject* hook = pyapi::lookUpInType(type, hookName);
  if (hook != nullptr && PyFunction_Check(hook)) {
    setter = hook;
    return breaks_.isLive();
  }
  if (!pyapi::setsAttributesPlainly(type) && !PyModule_Check(object) &&
      hook != pyapi::lookUpInType(&PyBaseObject_Type, hookName)) {
    setter = Py_None;
    return breaks_.isLive();
  }
  return storeGeneric(shadow, object, name, value, real, setter);
}

// For `exception.__traceback__ = ...` and the like. If the trace can rebuild the exception, there is nothing
// to emit: its recipe reads the field from the real object.
bool Stores::storesLink(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real) {
  if (!shadow.isVirtual()) return false;
  Virtual& v = virtuals_[shadow];
  if (v.kind != VirtualKind::kException || v.value != ir::kNone || PyExceptionInstance_Check(object) == 0)
    return false;
  const bool known = real == Py_None ? value.isConst() : known_.knownObject(real).has_value();
  for (const char* link : {"__traceback__", "__context__", "__cause__"}) {
    if (PyUnicode_CompareWithASCIIString(name, link) == 0 && known) {
      if (link[2] == 'c' && link[3] == 'o') v.index = 0;  // `__context__` was set by the program
      virtuals_.noteChange();
      return true;
    }
  }
  return false;
}

// What object.__setattr__ does: data descriptors of the type come first, then the instance dict.
bool Stores::storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                          PyObject*& setter) {
  if (shadow.isVirtual() && virtuals_[shadow].kind == VirtualKind::kFunction)
    return storeFunction(shadow, object, name, value, real, setter);
  PyObject* d = classes_.typeEntry(Py_TYPE(object), name).value;
  if (!breaks_.isLive()) return false;
  bool slot = d != nullptr && isSlot(d);
  if (slot && !shadow.isVirtual()) {
    ir::SourceId source = guards_.sourceOf(shadow, object);
    if (!effects_.emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name))
      return false;
    reads_.makeOverlay(object).attrs.note(name, value, real);
    return breaks_.isLive();
  }
  if (d != nullptr && !slot && pyapi::hasDescriptorSet(d)) {
    if (storesLink(shadow, object, name, value, real)) return breaks_.isLive();
    if (isProperty(d)) {
      PyObject* fset = reinterpret_cast<PyObject**>(d)[3];  // propertyobject: prop_set
      setter = fset != nullptr && PyFunction_Check(fset) ? fset : Py_None;
      if (Py_TYPE(d) != &PyProperty_Type) pins_.guardTypeVersion(Py_TYPE(d));
      return breaks_.isLive();
    }
    PyObject* written = pythonMethod(d, "__set__");
    if (written != nullptr) pins_.guardTypeVersion(Py_TYPE(d));
    setter = written != nullptr ? written : Py_None;
    return breaks_.isLive();
  }
  if (shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
    const bool attributes = v.kind == VirtualKind::kInstance || (v.kind == VirtualKind::kException && !slot);
    if (!attributes) {
      breaks_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
      return false;
    }
    if (v.value != ir::kNone && !effects_.emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
      return false;
    return virtuals_.setAttribute(virtuals_[shadow], name, value);
  }
  PyObject** dict = pyapi::materializedDictSlot(object);
  if (dict == nullptr) {
    setter = Py_None;
    return breaks_.isLive();
  }
  ir::SourceId source = guards_.sourceOf(shadow, object);
  if (!effects_.emitEffect(Op::kSetAttr, {{Shadow::source(source), object}, {value, real}}, name))
    return false;
  if (*dict == nullptr) {
    // This write makes the dict. A guard says that there was none; later reads find the entry in the overlay.
    pyapi::Ref<> made = pyapi::steal(PyObject_GenericGetDict(object, nullptr));
    guards_.guard(guard::GuardKind::kNoDict, source);
    Overlay& overlay = reads_.makeOverlay(made.get());
    overlay.dirty = true;
    overlay.entries.note(name, value, real);
    return breaks_.isLive();
  }
  guards_.readSource(SourceKind::kDict, source, nullptr, 0,
                     *dict);  // adds guards that tell it from other dicts
  return breaks_.isLive() && effects_.noteWrite(*dict, name, value, real);
}

// True if a frame of the function runs or waits: it goes on with the code that it has begun with.
bool Stores::hasFrame(PyObject* function) const {
  const auto runs = [function](const auto& frame) { return frame->function.get() == function; };
  if (std::ranges::any_of(frames_.all(), runs)) return true;
  return std::ranges::any_of(virtuals_.held(), [&](const Virtual* v) { return v->frame && runs(v->frame); });
}

// `function.__code__ = code` of a function that nobody outside of the trace has: it is made with that code.
bool Stores::storeCode(Virtual& v, Shadow value, PyObject* real) {
  if (v.exposed || v.value != ir::kNone || !value.isConst() || !PyCode_Check(real) ||
      hasFrame(v.object.get())) {
    breaks_.abort(diag::Code::KTG0303, {"__code__"});
    return false;
  }
  v.renamed = true;  // its documentation is not that of the new code
  virtuals_.noteChange();
  return breaks_.isLive();
}

// `__annotations__`, or `__annotate__` of CPython 3.14 and later. A dict replaces what makes one, a function
// replaces the dict.
bool Stores::setAnnotations(Virtual& v, PyObject* name, Shadow value, PyObject* real) {
  const bool later = PyUnicode_CompareWithASCIIString(name, "__annotate__") == 0;
  PyObject* other = PyDict_GetItemString(v.entries.get(), later ? "__annotations__" : "__annotate__");
  if (other != nullptr && (!later || real != Py_None))
    PyDict_DelItemString(v.entries.get(), later ? "__annotations__" : "__annotate__");
  return virtuals_.setEntry(v, name, value);
}

// An attribute of a function that the trace has made (functools.wraps and other decorators).
bool Stores::storeFunction(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                           PyObject*& setter) {
  static PyObject* annotations = PyUnicode_InternFromString("__annotations__");
  Virtual& v = virtuals_[shadow];
  if (PyUnicode_CompareWithASCIIString(name, "__code__") == 0) return storeCode(v, value, real);
  if (isFunctionName(name)) {  // reading one gives a constant
    if (!pins_.tryPinDeep(value, real)) {
      if (breaks_.isLive()) breaks_.abort(diag::Code::KTG0303, {pyapi::utf8(name)});
      return false;
    }
    if (v.value != ir::kNone) setter = Py_None;
    v.renamed = true;
    virtuals_.noteChange();
    return breaks_.isLive();
  }
  static PyObject* parameters = PyUnicode_InternFromString("__type_params__");
  // An empty tuple replaces an empty one.
  if (PyUnicode_Compare(name, parameters) == 0 && isEmptyTuple(real)) {
    const pyapi::Ref<> old = pyapi::steal(PyObject_GetAttr(object, name));
    if (!old) PyErr_Clear();
    if (isEmptyTuple(old.get()) && pins_.tryPinDeep(value, real)) return breaks_.isLive();
  }
  PyObject* d = pyapi::lookUpInType(&PyFunction_Type, name);
  const bool described = d != nullptr && pyapi::hasDescriptorSet(d);
  bool isAnnotations = PyUnicode_Compare(name, annotations) == 0;
  if (described && PyUnicode_CompareWithASCIIString(name, "__annotate__") == 0 &&
      (real == Py_None || PyFunction_Check(real))) {
    guards_.guardType(value, real);
    isAnnotations = true;
  }
  if (v.exposed || (!isAnnotations && described)) {
    breaks_.abort(diag::Code::KTG0303, {pyapi::utf8(name)});
    return false;
  }
  if (v.value != ir::kNone && !effects_.emitEffect(Op::kSetAttr, {{shadow, object}, {value, real}}, name))
    return false;
  virtuals_.noteChange();
  if (isAnnotations) return setAnnotations(virtuals_[shadow], name, value, real);
  return virtuals_.setAttribute(virtuals_[shadow], name, value);
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
  if (auto deleted = classes_.storeOpen(shadow, object, name, Shadow::null(), nullptr)) return *deleted;
  if (PyType_Check(object) || shadow.isValue() || (!generic && !PyFunction_Check(hook))) {
    breaks_.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
    return false;
  }
  if (PyFunction_Check(hook)) {
    guards_.guardType(shadow, object);
    pins_.guardTypeVersion(type);
    deleter = hook;
    return breaks_.isLive();
  }
  PyObject* d = classes_.typeEntry(type, name).value;
  if (!breaks_.isLive()) return false;
  PyObject* written = nullptr;
  if (d != nullptr && isProperty(d)) {
    PyObject* fdel = reinterpret_cast<PyObject**>(d)[4];  // propertyobject: prop_del
    if (fdel != nullptr && PyFunction_Check(fdel)) written = fdel;
  } else if (d != nullptr) {
    written = pythonMethod(d, "__delete__");
  }
  if (written == nullptr) return deleteGeneric(shadow, object, name);
  if (Py_TYPE(d) != &PyProperty_Type) pins_.guardTypeVersion(Py_TYPE(d));
  guards_.guardType(shadow, object);
  pins_.guardTypeVersion(type);
  deleter = written;
  return breaks_.isLive();
}

// What object.__delattr__ does.
bool Stores::deleteGeneric(Shadow shadow, PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* d = classes_.typeEntry(type, name).value;
  if (!breaks_.isLive()) return false;
  if (d != nullptr && pyapi::hasDescriptorSet(d)) {
    breaks_.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
    return false;
  }
  guards_.guardType(shadow, object);
  pins_.guardTypeVersion(type);
  if (shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
    if (v.kind != VirtualKind::kInstance) {
      breaks_.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
      return false;
    }
    if (PyDict_Contains(v.attrs.get(), name) != 1) return breaks_.isLive();  // the run raises AttributeError
    if (v.value != ir::kNone && !effects_.emitEffect(Op::kDelAttr, {{shadow, object}}, name)) return false;
    PyDict_DelItem(virtuals_[shadow].attrs.get(), name);
    virtuals_.noteChange();
    return true;
  }
  PyObject** slot = pyapi::materializedDictSlot(object);
  if (slot == nullptr) return breaks_.isLive();  // the run raises AttributeError
  ir::SourceId source = guards_.sourceOf(shadow, object);
  if (*slot == nullptr) {  // here too
    guards_.guard(guard::GuardKind::kNoDict, source);
    return breaks_.isLive();
  }
  Shadow dictShadow = guards_.readSource(SourceKind::kDict, source, nullptr, 0, *slot);
  PyObject* value = PyDict_GetItemWithError(*slot, name);
  if (value == nullptr) return effects_.lacksKey(dictShadow, *slot, name);
  reads_.dictEntry(dictShadow, *slot, name, value);  // guards that the attribute exists
  if (!effects_.emitEffect(Op::kDelAttr, {{Shadow::source(source), object}}, name)) return false;
  return effects_.noteDelete(*slot, name);
}

}  // namespace kintsugi::capture
