#include "capture/attributes.h"

#include "capture/calls/model.h"
#include "capture/class_attributes.h"
#include "capture/classes.h"
#include "capture/exceptions.h"
#include "capture/shown.h"
#include "capture/tables/pauses.h"
#include "capture/tensor_attributes.h"
#include "pyapi/dict.h"
#include "pyapi/exception_state.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/name_fields.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "support/check.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;

namespace {

// True for immutable C objects of torch (dtypes, devices, `torch.finfo`): their attributes never change.
bool isTorchValue(PyObject* object) {
  return pyapi::isPlainOfLibrary(object) || pyapi::isA(object, torchapi::Known::kTorchFinfo) ||
         pyapi::isA(object, torchapi::Known::kTorchIinfo);
}

bool isDataDescriptor(PyObject* d) { return pyapi::hasDescriptorSet(d); }

AttributePlan shadowPlan(Shadow shadow) {
  AttributePlan plan;
  plan.how = AttributePlan::kKnown;
  plan.shadow = shadow;
  return plan;
}

AttributePlan simple(AttributePlan::How how) {
  AttributePlan plan;
  plan.how = how;
  return plan;
}

// A descriptor whose class has a `__get__` in Python. `object` is None if the class is asked.
std::optional<AttributePlan> planGetter(RecordContext& rec, PyObject* descriptor, Shadow shadow,
                                        PyObject* object, PyTypeObject* owner) {
  PyObject* getter = pythonMethod(descriptor, "__get__");
  if (getter == nullptr) return std::nullopt;
  rec.guards.guardTypeVersion(Py_TYPE(descriptor));
  AttributePlan plan = simple(AttributePlan::kFrame);
  plan.pending = rec.callees.methodFrame(getter, classValue(rec, descriptor), descriptor);
  plan.pending.args.insert(plan.pending.args.end(), {object, reinterpret_cast<PyObject*>(owner)});
  plan.pending.shadows.insert(plan.pending.shadows.end(), {shadow, Shadow::constant()});
  plan.pending.positional = 3;
  return plan;
}

PyObject* getattrName() {
  static PyObject* name = PyUnicode_InternFromString("__getattr__");
  return name;
}

PyObject* getattributeOf(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__getattribute__");
  return pyapi::lookUpInType(type, name);
}

// For a Python function that gets the attribute's name as an argument: `__getattribute__` or `__getattr__`.
AttributePlan planNamedFrame(RecordContext& rec, PyObject* function, Shadow shadow, PyObject* object,
                             PyObject* name) {
  AttributePlan plan = simple(AttributePlan::kFrame);
  plan.pending = rec.callees.methodFrame(function, shadow, object);
  plan.pending.args.push_back(name);
  plan.pending.shadows.push_back(Shadow::constant());
  plan.pending.positional = 2;
  return plan;
}

// A tuple of classes, some of which the trace may have made.
Shadow classTuple(RecordContext& rec, PyObject* tuple) {
  Shadows parts;
  bool ours = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    parts.push_back(virtualShadowOf(rec, Shadow::constant(), PyTuple_GET_ITEM(tuple, i)));
    ours = ours || parts.back().isVirtual();
  }
  if (!ours) return Shadow::constant();
  auto known = rec.objects.knownObject(tuple);
  return known ? *known : rec.objects.tupleOf(tuple, std::move(parts));
}

// An attribute of a function that C code computes, other than `__dict__`. Nothing: it has to be a step.
std::optional<AttributePlan> planOfFunction(RecordContext& rec, PyObject* d, Shadow shadow, PyObject* object,
                                            std::string_view n) {
  if (pyapi::nameField(object, n) != nullptr) {
    if (shadow.isVirtual()) return shadowPlan(Shadow::constant());
    if (shadow.isValue() || isRenamed(rec, object)) return std::nullopt;
    return shadowPlan(shownName(rec, shadow, object, n).value_or(Shadow::constant()));
  }
  // The annotations dict is made when it is first asked for (from CPython 3.14 on by Python code), and is the
  // same from then on.
  if (n == "__annotations__" && !shadow.isVirtual()) {
    const Paused paused(rec.pauses);
    const pyapi::Ref<> dict = pyapi::steal(PyObject_GetAttrString(object, "__annotations__"));
    if (!dict) {
      PyErr_Clear();
      return std::nullopt;
    }
    return shadowPlan(
        rec.guards.readSource(SourceKind::kGetSet, rec.guards.sourceOf(shadow, object), d, 0, dict.get()));
  }
  // What makes the annotations (CPython 3.14 and later): a function or None.
  if (n == "__annotate__" && !shadow.isVirtual() && !shadow.isValue()) {
    const pyapi::Ref<> annotate = pyapi::steal(PyObject_GetAttrString(object, "__annotate__"));
    if (!annotate) {
      PyErr_Clear();
      return std::nullopt;
    }
    return shadowPlan(rec.guards.readSource(SourceKind::kGetSet, rec.guards.sourceOf(shadow, object), d, 0,
                                            annotate.get()));
  }
  // `__type_params__` (CPython 3.12 and later) is a tuple. A function that the trace rebuilds has none.
  if (n == "__type_params__") {
    const pyapi::Ref<> parameters =
        pyapi::steal(pyapi::bindDescriptor(d, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
    if (!parameters) PyErr_Clear();
    if (shadow.isVirtual() || !parameters)
      return isEmptyTuple(parameters.get()) ? std::optional(shadowPlan(Shadow::constant())) : std::nullopt;
    return shadowPlan(rec.guards.readSource(SourceKind::kGetSet, rec.guards.sourceOf(shadow, object), d, 0,
                                            parameters.get()));
  }
  // Unless unknown code has seen it, a function of the trace has the code that it was made with, or was
  // given.
  if (n == "__code__" && shadow.isVirtual() && !rec.objects.virtualOf(shadow).exposed &&
      rec.objects.virtualOf(shadow).kind == VirtualKind::kFunction)
    return shadowPlan(Shadow::constant());
  if (n == "__code__" && !shadow.isVirtual() && !shadow.isValue()) {
    rec.guards.guard(GuardKind::kFunction, rec.guards.sourceOf(shadow, object),
                     rec.guards.constId(PyFunction_GET_CODE(object)));
    return shadowPlan(Shadow::constant());
  }
  return std::nullopt;
}

AttributePlan planDescriptor(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                             PyObject* d);

// An attribute of a class that C code computes, such as `__mro__`. Nothing: it has to be a step.
std::optional<AttributePlan> planOfClass(RecordContext& rec, PyTypeObject* cls, std::string_view n,
                                         PyObject* d) {
  auto* object = reinterpret_cast<PyObject*>(cls);
  const bool field = Py_TYPE(d) == &PyGetSetDescr_Type || Py_TYPE(d) == &PyMemberDescr_Type;
  if (field && PyDescr_TYPE(d) == &PyBaseObject_Type && n == "__class__")
    return shadowPlan(Shadow::constant());
  if (!field || PyDescr_TYPE(d) != &PyType_Type) return std::nullopt;
  if (n == "__mro__" || n == "__bases__")
    return shadowPlan(classTuple(rec, n == "__mro__" ? pyapi::mroOf(cls) : pyapi::basesOf(cls)));
  const bool ours = virtualClassOf(rec, cls) != nullptr;
  if (pyapi::nameField(object, n) != nullptr && !ours) {
    if (isRenamed(rec, object)) return std::nullopt;
    return shadowPlan(shownName(rec, Shadow::constant(), object, n).value_or(Shadow::constant()));
  }
  if (n == "__name__" || n == "__qualname__" || n == "__module__" || n == "__doc__") {
    if (isRenamed(rec, object)) return std::nullopt;
    return shadowPlan(Shadow::constant());
  }
  // The class's version guards its own entries, unless some attributes are open.
  if (n == "__dict__" && !ours && closeAll(rec, cls)) {
    AttributePlan plan = shadowPlan(Shadow::constant());
    plan.frozen = true;
    return plan;
  }
  return std::nullopt;
}

AttributePlan planClass(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  auto* cls = reinterpret_cast<PyTypeObject*>(object);
  auto* meta = Py_TYPE(object);
  const bool plain = pyapi::getsAttributesLikeType(meta);
  PyObject* hook = plain ? nullptr : pyapi::lookUpInType(meta, getattrName());  // as EnumType has
  if (!plain && (getattributeOf(meta) != getattributeOf(&PyType_Type) ||
                 (hook != nullptr && !PyFunction_Check(hook)))) {
    return simple(AttributePlan::kStep);
  }
  if (shadow.isSource() && !rec.guards.pin(shadow, object)) return simple(AttributePlan::kAborted);
  rec.guards.guardTypeVersion(cls);
  rec.guards.guardTypeVersion(meta);
  const TypeEntry ofMeta = typeEntry(rec, meta, name), entry = typeEntry(rec, cls, name);
  if (!rec.live()) return simple(AttributePlan::kAborted);
  PyObject *metaValue = ofMeta.value, *value = entry.value;
  if (metaValue != nullptr && isDataDescriptor(metaValue)) {
    if (auto plan = planOfClass(rec, cls, pyapi::ascii(name), metaValue)) return std::move(*plan);
    return isProperty(metaValue) ? planDescriptor(rec, virtualShadowOf(rec, Shadow::constant(), object),
                                                  object, name, metaValue)
                                 : simple(AttributePlan::kStep);
  }
  if (entry.open) return shadowPlan(entry.shadow);
  if (value == nullptr) {
    if (ofMeta.open) return shadowPlan(ofMeta.shadow);
    if (metaValue != nullptr && pyapi::isMethodLike(metaValue)) {
      AttributePlan plan = simple(AttributePlan::kMethod);
      plan.function = metaValue;
      return plan;
    }
    if (metaValue == nullptr && hook != nullptr)
      return planNamedFrame(rec, hook, Shadow::constant(), object, name);
    return simple(metaValue == nullptr && meta == &PyType_Type ? AttributePlan::kRaises
                                                               : AttributePlan::kStep);
  }
  if (PyFunction_Check(value)) return shadowPlan(Shadow::constant());
  if (Py_TYPE(value) == &PyStaticMethod_Type || isProperty(value) || pyapi::isMethodLike(value) ||
      Py_TYPE(value) == &PyGetSetDescr_Type || Py_TYPE(value) == &PyMemberDescr_Type) {
    return shadowPlan(Shadow::constant());
  }
  if (auto plan = planGetter(rec, value, Shadow::constant(), Py_None, cls)) return std::move(*plan);
  if (Py_TYPE(value) == &PyClassMethod_Type || pyapi::hasDescriptorGet(value)) {
    return shadowPlan(Shadow{});  // a bound method; it is described once it has been made
  }
  return shadowPlan(virtualClassAttribute(rec, cls, name, value).value_or(classValue(rec, value)));
}

// Looks the name up in the instance's dict. Returns the entry, or nothing after a guard that there is none.
std::optional<Shadow> instanceEntry(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                                    bool& aborted) {
  if (shadow.isVirtual()) {
    Virtual& v = rec.objects.virtualOf(shadow);
    if (v.kind != VirtualKind::kInstance && v.kind != VirtualKind::kFunction &&
        (v.kind != VirtualKind::kException || v.value != ir::kNone)) {
      PyObject** slot = pyapi::materializedDictSlot(object);
      if (slot == nullptr || *slot == nullptr) return std::nullopt;
      if (v.kind == VirtualKind::kOpaque || v.value != ir::kNone) {
        rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
        aborted = true;
      }
      return std::nullopt;
    }
    PyObject** dict = v.exposed ? pyapi::materializedDictSlot(object) : nullptr;
    if (dict != nullptr && *dict != nullptr) {
      rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(object)});
      aborted = true;
      return std::nullopt;
    }
    PyObject* encoded = PyDict_GetItemWithError(v.attrs.get(), name);
    if (encoded != nullptr) return decodeShadow(encoded);
    return std::nullopt;
  }
  PyObject** slot = pyapi::materializedDictSlot(object);
  if (slot == nullptr) return std::nullopt;
  ir::SourceId source = rec.guards.sourceOf(shadow, object);
  if (*slot == nullptr) {
    rec.guards.guard(GuardKind::kNoDict, source);
    return std::nullopt;
  }
  PyObject* dict = *slot;
  Shadow dictShadow = rec.guards.readSource(SourceKind::kDict, source, nullptr, 0, dict);
  PyObject* value = PyDict_GetItemWithError(dict, name);
  if (value != nullptr) {
    Shadow entry = rec.objects.dictEntry(dictShadow, dict, name, value);
    aborted = !rec.live();
    return entry;
  }
  aborted = !rec.heap.lacksKey(dictShadow, dict, name);
  return std::nullopt;
}

// The dict of an instance made here: a virtual dict that shares the instance's entries.
AttributePlan planVirtualDict(RecordContext& rec, Shadow shadow, PyObject* object) {
  Virtual& v = rec.objects.virtualOf(shadow);
  bool known = v.kind == VirtualKind::kInstance || v.kind == VirtualKind::kFunction ||
               v.kind == VirtualKind::kException;
  if (!known || v.exposed || (v.value != ir::kNone && v.kind != VirtualKind::kInstance))
    return simple(AttributePlan::kStep);
  pyapi::Ref<> dict = pyapi::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) {
    PyErr_Clear();
    return simple(AttributePlan::kStep);
  }
  if (auto known = rec.objects.knownObject(dict.get())) {
    AttributePlan plan = simple(AttributePlan::kKnown);
    plan.shadow = *known;
    return plan;
  }
  Shadow result = rec.objects.newVirtual(VirtualKind::kDict, dict.get());
  rec.objects.virtualOf(result).entries = rec.objects.virtualOf(shadow).attrs.clone();
  rec.objects.virtualOf(result).shared = true;
  rec.objects.virtualOf(result).parts = {shadow};
  rec.objects.virtualOf(result).partObjects.push_back(pyapi::newRef(object));
  AttributePlan plan = simple(AttributePlan::kKnown);
  plan.shadow = result;
  return plan;
}

AttributePlan planException(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name);
AttributePlan planTraceback(RecordContext& rec, PyObject* object, PyObject* name);

// Annotations of a function that the trace has made without any: an empty dict that is made on demand, and
// no function that makes them.
std::optional<Shadow> noAnnotations(RecordContext& rec, Shadow shadow, PyObject* function, PyObject* name) {
  Virtual& v = rec.objects.virtualOf(shadow);
  if (pyapi::ascii(name) == "__annotate__") return Shadow::constant();  // None
  if (pyapi::ascii(name) != "__annotations__" || v.value != ir::kNone) return std::nullopt;
  // Nobody asks the function that makes them while recording.
  if (PyDict_GetItemString(v.entries.get(), "__annotate__") != nullptr) return std::nullopt;
  pyapi::Ref<> dict = pyapi::steal(PyObject_GetAttr(function, name));
  if (!dict || !PyDict_CheckExact(dict.get()) || PyDict_GET_SIZE(dict.get()) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  Shadow result = rec.objects.newVirtual(VirtualKind::kDict, dict.get());
  rec.objects.setEntry(rec.objects.virtualOf(shadow), name, result);
  rec.objects.noteChange();
  return result;
}

// The index of the field that a named tuple's descriptor reads; -1: another kind of descriptor.
Py_ssize_t fieldIndex(PyObject* descriptor, PyObject* object) {
  if (!PyTuple_Check(object) || !pyapi::isA(descriptor, pyapi::Known::kTupleGetter)) return -1;
  pyapi::Ref<> reduced = pyapi::steal(PyObject_CallMethod(descriptor, "__reduce__", nullptr));
  Py_ssize_t index = -1;
  PyObject* doc = nullptr;
  const bool known = reduced && PyArg_ParseTuple(PyTuple_GET_ITEM(reduced.get(), 1), "nO", &index, &doc) != 0;
  PyErr_Clear();
  return known && index < PyTuple_GET_SIZE(object) ? index : -1;
}

// A part of a slice that the trace has made.
AttributePlan planSlice(RecordContext& rec, Shadow shadow, PyObject* name) {
  constexpr std::array<std::string_view, 3> names = {"start", "stop", "step"};
  const Shadows& parts = rec.objects.virtualOf(shadow).parts;
  const auto at = static_cast<size_t>(std::ranges::find(names, pyapi::ascii(name)) - names.begin());
  return at < parts.size() ? shadowPlan(parts[at]) : simple(AttributePlan::kStep);
}

AttributePlan planDescriptor(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                             PyObject* found) {
  PyObject* d = pyapi::fieldBehind(found);
  if (const Py_ssize_t index = fieldIndex(d, object); index >= 0 && !shadow.isValue()) {
    auto field = rec.objects.elementOf(shadow, object, index);
    return field ? shadowPlan(*field) : simple(rec.live() ? AttributePlan::kStep : AttributePlan::kAborted);
  }
  bool field = Py_TYPE(d) == &PyGetSetDescr_Type || Py_TYPE(d) == &PyMemberDescr_Type;
  if (field && shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kException) {
    return planException(rec, shadow, object, name);
  }
  if (field && shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kTraceback) {
    return planTraceback(rec, object, name);
  }
  if (shadow.isVirtual() && PyFunction_Check(object) &&
      rec.objects.virtualOf(shadow).kind == VirtualKind::kFunction) {
    if (rec.objects.virtualOf(shadow).exposed) return simple(AttributePlan::kStep);
    if (isFunctionName(name)) return shadowPlan(Shadow::constant());
    if (auto slot = rec.objects.entryOf(rec.objects.virtualOf(shadow), name)) return shadowPlan(*slot);
    if (auto none = noAnnotations(rec, shadow, object, name)) return shadowPlan(*none);
  }
  if (isProperty(d)) {
    if (Py_TYPE(d) != &PyProperty_Type) rec.guards.guardTypeVersion(Py_TYPE(d));
    PyObject* getter = reinterpret_cast<PyObject**>(d)[2];  // propertyobject: PyObject_HEAD, prop_get
    if (getter == nullptr || !PyFunction_Check(getter)) return simple(AttributePlan::kStep);
    AttributePlan plan = simple(AttributePlan::kFrame);
    plan.pending = rec.callees.methodFrame(getter, shadow, object);
    return plan;
  }
  if (pyapi::ascii(name) == "__dict__" && shadow.isVirtual() &&
      (rec.objects.virtualOf(shadow).kind == VirtualKind::kInstance ||
       rec.objects.virtualOf(shadow).kind == VirtualKind::kFunction)) {
    return planVirtualDict(rec, shadow, object);
  }
  if (isSlot(d) && shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kInstance) {
    Virtual& v = rec.objects.virtualOf(shadow);
    if (v.value != ir::kNone) return simple(AttributePlan::kStep);
    PyObject* encoded = PyDict_GetItemWithError(v.attrs.get(), name);
    return encoded != nullptr ? shadowPlan(decodeShadow(encoded)) : simple(AttributePlan::kRaises);
  }
  if (Py_TYPE(d) == &PyMemberDescr_Type && shadow.isVirtual() && PySlice_Check(object))
    return planSlice(rec, shadow, name);
  if (Py_TYPE(d) == &PyMemberDescr_Type && !shadow.isVirtual()) {
    if (!isSlot(d) && isRenamed(rec, object)) return simple(AttributePlan::kStep);
    pyapi::Ref<> value =
        pyapi::steal(pyapi::bindDescriptor(d, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
    if (Overlay* overlay = rec.objects.overlayOf(object)) {
      PyErr_Clear();
      if (const auto written = rec.objects.readBack(overlay->attrs, name, object, value.get()))
        return shadowPlan(*written);
    }
    ir::SourceId source = rec.guards.sourceOf(shadow, object);
    if (!value) {
      PyErr_Clear();
      rec.guards.guard(GuardKind::kEmptyMember, source, rec.guards.constId(d));
      return simple(AttributePlan::kRaises);
    }
    return shadowPlan(rec.guards.readSource(SourceKind::kMember, source, d, 0, value.get()));
  }
  if (Py_TYPE(d) == &PyGetSetDescr_Type) {
    std::string_view n = pyapi::ascii(name);
    if (n == "__class__") return shadowPlan(Shadow::constant());
    PyObject** slot = n == "__dict__" && !shadow.isVirtual() ? pyapi::materializedDictSlot(object) : nullptr;
    // A function makes its dict when it is first asked for it.
    if (slot != nullptr && *slot == nullptr && PyFunction_Check(object))
      Py_XDECREF(PyObject_GenericGetDict(object, nullptr));
    if (slot != nullptr && *slot != nullptr) {
      return shadowPlan(
          rec.guards.readSource(SourceKind::kDict, rec.guards.sourceOf(shadow, object), nullptr, 0, *slot));
    }
    if (auto plan = PyFunction_Check(object) ? planOfFunction(rec, d, shadow, object, n) : std::nullopt)
      return std::move(*plan);
    return simple(AttributePlan::kStep);
  }
  // pybind puts C functions into classes as instance methods. Binding one makes a method.
  if (PyInstanceMethod_Check(d)) return shadowPlan(Shadow{});
  if (auto plan = planGetter(rec, d, shadow, object, Py_TYPE(object))) return std::move(*plan);
  return simple(AttributePlan::kStep);
}

}  // namespace

std::optional<CallKind> storeKind(RecordContext& rec, PyObject* object, PyObject* name) {
  static PyObject* dictName = PyUnicode_InternFromString("__dict__");
  PyObject* d = pyapi::lookUpInType(Py_TYPE(object), name);
  // A class may have the descriptor under another name too.
  const bool dict = d != nullptr && Py_TYPE(d) == &PyGetSetDescr_Type &&
                    PyDict_GetItemWithError(pyapi::dictOf(PyDescr_TYPE(d)), dictName) == d;
  if (!dict) return CallKind::kKnown;
  PyObject** slot = pyapi::materializedDictSlot(object);
  auto old = slot != nullptr && *slot != nullptr ? rec.objects.knownObject(*slot) : std::nullopt;
  if (old && old->isVirtual() && !rec.snapshots.escape(*old, *slot)) return std::nullopt;
  return CallKind::kOpaque;
}

namespace {

// A tuple that C code has built from objects of the trace.
std::optional<Shadow> tupleOfKnown(RecordContext& rec, PyObject* tuple) {
  if (auto known = rec.objects.knownObject(tuple)) return known;
  Shadows parts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    auto part = rec.objects.knownObject(PyTuple_GET_ITEM(tuple, i));
    if (!part || !part->isVirtual()) return std::nullopt;
    parts.push_back(*part);
  }
  return rec.objects.tupleOf(tuple, std::move(parts));
}

// Attributes of an exception that the trace has made or caught.
AttributePlan planException(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  Virtual& v = rec.objects.virtualOf(shadow);
  if (v.value != ir::kNone) return simple(AttributePlan::kStep);
  const pyapi::ExceptionParts parts = pyapi::partsOf(object);
  std::string_view n = pyapi::ascii(name);
  if (n == "__class__" || n == "__suppress_context__") return shadowPlan(Shadow::constant());
  if (n == "args") {
    if (auto made = rec.objects.knownObject(parts.args)) return shadowPlan(*made);
    bool same = v.parts.size() == static_cast<size_t>(PyTuple_GET_SIZE(parts.args));
    for (size_t i = 0; same && i < v.parts.size(); ++i) {
      same = v.partObjects[i].get() == PyTuple_GET_ITEM(parts.args, static_cast<Py_ssize_t>(i));
    }
    return same ? shadowPlan(rec.objects.tupleOf(parts.args, v.parts)) : simple(AttributePlan::kStep);
  }
  if (n == "__traceback__") return shadowPlan(tracebackShadow(rec, parts.traceback));
  if (n == "__cause__" || n == "__context__") {
    PyObject* other = n == "__cause__" ? parts.cause : parts.context;
    if (other == nullptr || other == Py_None) {
      return n == "__context__" && v.index != 0 ? simple(AttributePlan::kStep)
                                                : shadowPlan(Shadow::constant());
    }
    if (auto made = rec.objects.knownObject(other)) return shadowPlan(*made);
  }
  if (n == "__dict__") return planVirtualDict(rec, shadow, object);
  std::optional<Shadow> field;  // a field that C code has filled in
  pyapi::forEachField(object, [&](PyObject* fieldName, PyObject* value) {
    if (pyapi::ascii(fieldName) != n) return true;
    if (value == nullptr || isPlain(value)) {
      field = Shadow::constant();
    } else if (PyTuple_CheckExact(value)) {  // `exceptions` of an exception group
      field = tupleOfKnown(rec, value);
    } else {
      field = rec.objects.knownObject(value);
    }
    return false;
  });
  return field ? shadowPlan(*field) : simple(AttributePlan::kStep);
}

AttributePlan planTraceback(RecordContext& rec, PyObject* object, PyObject* name) {
  std::string_view n = pyapi::ascii(name);
  if (n == "tb_lineno" || n == "tb_lasti" || n == "__class__") return shadowPlan(Shadow::constant());
  if (n == "tb_next") return shadowPlan(tracebackShadow(rec, pyapi::entryOf(object).next));
  return simple(AttributePlan::kStep);
}

bool isModuleGetattr(PyObject* hook) {
  static constinit pyapi::Lazy<PyObject*> codeSlot;
  PyObject* code = codeSlot.get([] {
    pyapi::Ref<> module = pyapi::steal(pyapi::importModule("torch.nn.modules.module"));
    pyapi::Ref<> cls = pyapi::steal(module ? PyObject_GetAttrString(module.get(), "Module") : nullptr);
    pyapi::Ref<> function = pyapi::steal(cls ? PyObject_GetAttrString(cls.get(), "__getattr__") : nullptr);
    PyErr_Clear();
    return function && PyFunction_Check(function.get()) ? Py_NewRef(PyFunction_GET_CODE(function.get()))
                                                        : nullptr;
  });
  return code != nullptr && PyFunction_Check(hook) && PyFunction_GET_CODE(hook) == code;
}

// Does what torch.nn.Module.__getattr__ does without recording its bytecode: a call asks modules for
// parameters and submodules hundreds of times.
AttributePlan planModule(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                         PyObject* hook) {
  PyObject** slot = pyapi::materializedDictSlot(object);
  if (slot == nullptr || *slot == nullptr) return simple(AttributePlan::kStep);
  rec.guards.pinFunction(hook);
  PyObject* dict = *slot;
  Shadow dictShadow =
      rec.guards.readSource(SourceKind::kDict, rec.guards.sourceOf(shadow, object), nullptr, 0, dict);
  static PyObject* parts[] = {PyUnicode_InternFromString("_parameters"),
                              PyUnicode_InternFromString("_buffers"), PyUnicode_InternFromString("_modules")};
  for (PyObject* part : parts) {
    PyObject* members = PyDict_GetItemWithError(dict, part);
    if (members == nullptr) {
      if (!rec.heap.lacksKey(dictShadow, dict, part)) return simple(AttributePlan::kAborted);
      continue;
    }
    if (!PyDict_Check(members) || !rec.objects.plainDict(members)) return simple(AttributePlan::kStep);
    Shadow membersShadow = rec.objects.dictEntry(dictShadow, dict, part, members);
    PyObject* value = PyDict_GetItemWithError(members, name);
    if (value != nullptr) {
      AttributePlan plan = shadowPlan(rec.objects.dictEntry(membersShadow, members, name, value));
      plan.native = true;
      return plan;
    }
    if (!rec.heap.lacksKey(membersShadow, members, name)) return simple(AttributePlan::kAborted);
  }
  AttributePlan plan = simple(AttributePlan::kRaises);
  plan.native = true;
  return plan;
}

AttributePlan planHooked(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name);

// `__func__` or `__self__` of a bound method that the trace has made. They never change.
std::optional<Shadow> partOfMethod(RecordContext& rec, Shadow shadow, PyObject* object, std::string_view n) {
  if (!shadow.isVirtual() || Py_TYPE(object) != &PyMethod_Type || (n != "__func__" && n != "__self__"))
    return std::nullopt;
  const Virtual& v = rec.objects.virtualOf(shadow);
  if (v.kind != VirtualKind::kMethod) return std::nullopt;
  return rec.objects.current(v.parts[n == "__self__" ? 1 : 0]);
}

AttributePlan planInstance(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  if (auto part = partOfMethod(rec, shadow, object, pyapi::ascii(name))) return shadowPlan(*part);
  PyTypeObject* type = Py_TYPE(object);
  PyObject* override = pyapi::getsAttributesPlainly(type) ? nullptr : getattributeOf(type);
  // A module of a subclass of ModuleType (such as torch._VF) looks names up like other objects do, unless its
  // dict has a `__getattr__`.
  const bool isModule = PyModule_Check(object) != 0 && override == getattributeOf(&PyModule_Type) &&
                        PyDict_GetItemWithError(PyModule_GetDict(object), getattrName()) == nullptr;
  if (override == nullptr || override == getattributeOf(&PyBaseObject_Type) || isModule) {
    AttributePlan plan = planGeneric(rec, shadow, object, name);
    if (plan.how != AttributePlan::kRaises) return plan;
    if (isModule) {
      PyObject* dict = PyModule_GetDict(object);
      Shadow names =
          rec.guards.readSource(SourceKind::kDict, rec.guards.sourceOf(shadow, object), nullptr, 0, dict);
      if (!rec.heap.lacksKey(names, dict, getattrName())) return simple(AttributePlan::kAborted);
    }
    return planHooked(rec, shadow, object, name);
  }
  if (!PyFunction_Check(override)) return simple(AttributePlan::kStep);
  rec.guards.guardType(shadow, object);
  rec.guards.guardTypeVersion(type);
  return planNamedFrame(rec, override, shadow, object, name);
}

// The plain look-up has found nothing, so `__getattr__` is asked, if there is one.
AttributePlan planHooked(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  PyObject* hook = pyapi::lookUpInType(Py_TYPE(object), getattrName());
  if (hook == nullptr) return simple(AttributePlan::kRaises);
  if (isModuleGetattr(hook) && !shadow.isVirtual()) return planModule(rec, shadow, object, name, hook);
  if (!PyFunction_Check(hook)) return simple(AttributePlan::kStep);
  return planNamedFrame(rec, hook, shadow, object, name);
}

// A module that lacks the name and has no `__getattr__`. The access raises, under a guard that both names are
// missing.
AttributePlan planMissing(RecordContext& rec, Shadow shadow, PyObject* module, PyObject* name) {
  PyObject* dict = PyModule_GetDict(module);
  if (pyapi::lookUpInType(Py_TYPE(module), name) != nullptr) return simple(AttributePlan::kStep);
  if (PyDict_GetItemWithError(dict, getattrName()) != nullptr) return simple(AttributePlan::kStep);
  Shadow pinned = shadow;
  if (pinned.isSource() && !rec.guards.pin(pinned, module)) return simple(AttributePlan::kAborted);
  Shadow dictShadow =
      rec.guards.readSource(SourceKind::kDict, rec.guards.sourceOf(pinned, module), nullptr, 0, dict);
  if (!rec.heap.lacksKey(dictShadow, dict, name) || !rec.heap.lacksKey(dictShadow, dict, getattrName())) {
    return simple(AttributePlan::kAborted);
  }
  return simple(AttributePlan::kRaises);
}

// An attribute of a frozen object. Annotations are excluded: they are in a dict, which can change.
std::optional<AttributePlan> planFrozen(RecordContext& rec, PyObject* object, PyObject* name) {
  PyObject* d = pyapi::lookUpInType(Py_TYPE(object), name);
  if (d == nullptr || pyapi::isMethodLike(d) || pyapi::ascii(name).ends_with("annotation"))
    return std::nullopt;
  const Paused paused(rec.pauses);
  pyapi::Ref<> value = pyapi::steal(PyObject_GetAttr(object, name));
  if (!value) {
    PyErr_Clear();
    return std::nullopt;
  }
  AttributePlan plan = shadowPlan(frozenPart(rec, value.get()));
  plan.native = true;
  return plan;
}

}  // namespace

AttributePlan planGeneric(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  rec.guards.guardType(shadow, object);
  rec.guards.guardTypeVersion(type);
  if (!rec.live()) return simple(AttributePlan::kAborted);
  const TypeEntry ofType = typeEntry(rec, type, name);
  if (!rec.live()) return simple(AttributePlan::kAborted);
  PyObject* d = ofType.value;
  if (d != nullptr && isDataDescriptor(d)) return planDescriptor(rec, shadow, object, name, d);
  bool aborted = false;
  auto entry = instanceEntry(rec, shadow, object, name, aborted);
  if (aborted) return simple(AttributePlan::kAborted);
  if (entry) return shadowPlan(*entry);
  if (ofType.open) return shadowPlan(ofType.shadow);
  if (d != nullptr) {
    if (pyapi::isMethodLike(d)) {
      AttributePlan plan = simple(AttributePlan::kMethod);
      plan.function = d;
      return plan;
    }
    if (Py_TYPE(d) == &PyStaticMethod_Type) return shadowPlan(Shadow::constant());
    if (Py_TYPE(d) == &PyClassMethod_Type) return shadowPlan(Shadow{});
    if (!pyapi::hasDescriptorGet(d))
      return shadowPlan(virtualClassAttribute(rec, type, name, d).value_or(classValue(rec, d)));
    return planDescriptor(rec, shadow, object, name, d);
  }
  return simple(AttributePlan::kRaises);
}

Shadow classValue(RecordContext& rec, PyObject* value) {
  if (Shadow made = virtualShadowOf(rec, Shadow::constant(), value); made.isVirtual()) return made;
  if (isPlainDeep(value) || PyFunction_Check(value) || PyType_Check(value) || PyCFunction_Check(value) ||
      pyapi::isMethodLike(value)) {
    return Shadow::constant();
  }
  return rec.guards.pinnedRoot(value);
}

PendingFrame setterFrame(RecordContext& rec, PyObject* setter, Shadow shadow, PyObject* object,
                         PyObject* name, Shadow value, PyObject* real) {
  static PyObject* setName = PyUnicode_InternFromString("__setattr__");
  static PyObject* deleteName = PyUnicode_InternFromString("__delattr__");
  const bool hook = pyapi::lookUpInType(Py_TYPE(object), real != nullptr ? setName : deleteName) == setter;
  PyObject* d = hook ? nullptr : pyapi::lookUpInType(Py_TYPE(object), name);
  const bool written = d != nullptr && !isProperty(d);  // a `__set__` or `__delete__` in Python
  PendingFrame pending = written ? rec.callees.methodFrame(setter, classValue(rec, d), d)
                                 : rec.callees.methodFrame(setter, shadow, object);
  auto push = [&](PyObject* argument, Shadow of) {
    pending.args.push_back(argument);
    pending.shadows.push_back(of);
  };
  if (written) push(object, shadow);
  if (hook) push(name, Shadow::constant());
  if (real != nullptr) push(real, value);
  pending.positional = pending.args.size();
  return pending;
}

Shadow boundMethod(RecordContext& rec, PyObject* method, PyObject* function, Shadow functionShadow,
                   PyObject* self, Shadow selfShadow) {
  Shadow shadow = rec.objects.newVirtual(VirtualKind::kMethod, method);
  Virtual& v = rec.objects.virtualOf(shadow);
  v.parts = {virtualShadowOf(rec, functionShadow, function), virtualShadowOf(rec, selfShadow, self)};
  v.partObjects.push_back(pyapi::newRef(function));
  v.partObjects.push_back(pyapi::newRef(self));
  return shadow;
}

namespace {

// True for attributes of a code object that follow from the program's text alone, so that they are the same
// in another process (see kintsugi._package_describe). Lines and the file name are not among them.
bool isOfProgram(PyObject* name) {
  return std::ranges::any_of(
      std::to_array({"co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_varnames",
                     "co_names", "co_freevars", "co_cellvars", "co_consts", "co_nlocals"}),
      [name](const char* known) { return PyUnicode_CompareWithASCIIString(name, known) == 0; });
}

}  // namespace

AttributePlan planAttribute(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name) {
  if (shadow.isConst() && (isPlain(object) || isTorchValue(object))) {
    PyObject* d = pyapi::lookUpInType(Py_TYPE(object), name);
    if (d != nullptr && pyapi::isMethodLike(d)) {
      AttributePlan plan = simple(AttributePlan::kMethod);
      plan.function = d;
      return plan;
    }
    return shadowPlan(Shadow::constant());
  }
  if (shadow.isConst() && (rec.guards.isFrozen(object) || PyCode_Check(object))) {
    if (PyCode_Check(object) && !isOfProgram(name)) rec.facts.bound = "it looks at the lines of a function";
    if (auto plan = planFrozen(rec, object, name)) return std::move(*plan);
  }
  if (torchapi::isTensor(object)) return planTensor(rec, shadow, object, name);
  if (PyModule_CheckExact(object)) {
    auto entry = rec.heap.moduleAttribute(shadow, object, name);
    if (!rec.live()) return simple(AttributePlan::kAborted);
    if (entry) return shadowPlan(*entry);
    return planMissing(rec, shadow, object, name);
  }
  if (PyType_Check(object)) return planClass(rec, shadow, object, name);
  if (shadow.isValue()) {
    PyObject* d = pyapi::lookUpInType(Py_TYPE(object), name);
    if (d != nullptr && pyapi::isMethodLike(d)) {
      AttributePlan plan = simple(AttributePlan::kMethod);
      plan.function = d;
      return plan;
    }
    return simple(AttributePlan::kStep);
  }
  return planInstance(rec, shadow, object, name);
}

}  // namespace kintsugi::capture
