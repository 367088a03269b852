// Guards: questions about shadows, and pinning that may fail without ending the recording.
#include <string_view>

#include "capture/enum_member.h"
#include "capture/open_values.h"
#include "capture/record_context.h"
#include "capture/sizes.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;

// True if the object depends on something that is only known while the trace runs.
bool Guards::comesFromStep(Shadow shadow) const {
  if (shadow.isValue()) return true;
  if (shadow.isVirtual()) {
    const Virtual& v = virtuals_.at(shadow.virtualId());
    for (Shadow part : v.parts) {
      if (comesFromStep(part)) return true;
    }
    return v.kind == VirtualKind::kOpaque || v.kind == VirtualKind::kInstance || v.kind == VirtualKind::kDict;
  }
  if (!shadow.isSource()) return false;
  if (isOpenText(rec_, shadow)) return true;
  const guard::SourceNode* node = &document_.sources.nodes[shadow.sourceId()];
  while (node->parent != ir::kNone) node = &document_.sources.nodes[node->parent];
  return node->kind == SourceKind::kValue;
}

// True for an argument of the call, and also for an object that a step has made or that was reached through
// one: both are different objects in each run.
bool Guards::isArgument(Shadow shadow) const {
  if (!shadow.isSource()) return false;
  const guard::SourceNode* node = &document_.sources.nodes[shadow.sourceId()];
  if (node->kind == SourceKind::kArg) return true;
  while (node->parent != ir::kNone) node = &document_.sources.nodes[node->parent];
  return node->kind == SourceKind::kValue;
}

// True for immutable objects that are compared by identity, or by C code: enum members, dtypes, devices,
// types, functions.
bool isIdentityValue(PyObject* object) {
  if (PyType_Check(object) || PyFunction_Check(object) || PyModule_Check(object) || PyCFunction_Check(object))
    return true;
  return pyapi::isTorchConstant(object) || isEnumMember(object) || pyapi::isBoundEnumMember(object);
}

bool isEnumMember(PyObject* object) {
  static constinit pyapi::Lazy<PyObject*> enumTypeSlot;
  PyObject* enumType = enumTypeSlot.get([] {
    PyObject* module = pyapi::importModule("enum");
    return PyObject_GetAttrString(module, "Enum");
  });
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(enumType)) != 0;
}

bool isPlainFlag(PyTypeObject* type) {
  static constinit pyapi::Lazy<PyObject*> moduleSlot;
  PyObject* module = moduleSlot.get([] { return pyapi::importModule("enum"); });
  static constinit pyapi::Lazy<PyObject*> flagSlot;
  PyObject* flag = flagSlot.get([&] { return PyObject_GetAttrString(module, "Flag"); });
  static constinit pyapi::Lazy<PyObject*> baseSlot;
  PyObject* base = baseSlot.get([&] { return PyObject_GetAttrString(module, "Enum"); });
  if (!PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(flag))) return false;
  for (const char* name : {"_missing_", "__new__", "__invert__"}) {
    PyObject* found = specialMethod(type, name);
    if (found != specialMethod(reinterpret_cast<PyTypeObject*>(flag), name) &&
        found != specialMethod(reinterpret_cast<PyTypeObject*>(base), name)) {
      return false;
    }
  }
  return true;
}

bool Guards::canPinDeep(Shadow shadow, PyObject* object) {
  if (object == nullptr || shadow.isNull()) return true;
  if (torchapi::isTensor(object)) return false;
  if (shadow.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(shadow);
    if (v.kind == VirtualKind::kRange) return true;
    if (v.kind != VirtualKind::kTuple && v.kind != VirtualKind::kList) return false;
    for (size_t i = 0; i < v.parts.size(); ++i) {
      PyObject* item = PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
      if (!canPinDeep(v.parts[i], item)) return false;
    }
    return true;
  }
  if (shadow.isConst()) return true;
  if (isPlainDeep(object) || isIdentityValue(object) || pyapi::isNumpyNumber(object)) return true;
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    if (shadow.isValue()) return false;
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* item = PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
      if (!isPlainDeep(item) && !isIdentityValue(item)) return false;
    }
    return true;
  }
  return shadow.isSource() && pyapi::comparesByIdentity(object);
}

bool Guards::tryPinDeep(Shadow& shadow, PyObject* object) {
  return canPinDeep(shadow, object) && pinDeep(shadow, object);
}

Shadow Objects::current(Shadow shadow) {
  if (!shadow.isVirtual() || !virtualOf(shadow).forgotten) return shadow;
  Virtual& v = virtualOf(shadow);
  return rec_.guards.readSource(SourceKind::kValue, ir::kNone, nullptr, v.value, v.object.get());
}

bool Objects::plainIteration(PyObject* dict) {
  if (PyDict_CheckExact(dict) || Py_TYPE(dict) == &PyODict_Type) return true;
  PyObject* method = specialMethod(Py_TYPE(dict), "__iter__");
  if (method == nullptr || PyFunction_Check(method)) return false;
  rec_.guards.guardTypeVersion(Py_TYPE(dict));
  return true;
}

bool Objects::plainDict(PyObject* dict) {
  if (PyDict_CheckExact(dict) || Py_TYPE(dict) == &PyODict_Type) return true;
  for (const char* name : {"__contains__", "__getitem__", "__len__", "__iter__"}) {
    PyObject* method = specialMethod(Py_TYPE(dict), name);
    if (method == nullptr || PyFunction_Check(method)) return false;
  }
  rec_.guards.guardTypeVersion(Py_TYPE(dict));
  return true;
}

CallKind Steps::stepKind(PyObject* object) {
  if (torchapi::isTensor(object) || !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE))
    return CallKind::kKnown;
  return CallKind::kOpaque;
}

namespace {

// An operator may give its argument back where sizes or strides are others. If one of two tensors that are
// compared is the result of such a one, the metadata of both are pinned.
bool pinGivenBack(RecordContext& rec, PyObject* x, PyObject* y) {
  const auto left = rec.ops().valueOf(x), right = rec.ops().valueOf(y);
  if (!left || !right || (!rec.ops().isMaybeArgument(*left) && !rec.ops().isMaybeArgument(*right)))
    return true;
  return pinMeta(rec, Shadow::value(*left), x) && pinMeta(rec, Shadow::value(*right), y);
}

}  // namespace

// Guards the answer to `x is y`.
bool Guards::pinIdentity(Shadow a, PyObject* x, Shadow b, PyObject* y) {
  if (torchapi::isTensor(x) && torchapi::isTensor(y) && !pinGivenBack(rec_, x, y)) return false;
  if (a.isSource() && (y == Py_None || x == Py_None) && b.isConst()) return pinIsNone(a, x);
  if (b.isSource() && (x == Py_None || y == Py_None) && a.isConst()) return pinIsNone(b, y);
  for (auto [shadow, object] : {std::pair(&a, x), std::pair(&b, y)}) {
    if (shadow->isValue() && !torchapi::isTensor(object) && !pin(*shadow, object)) return false;
  }
  auto sourceId = [&](Shadow s, PyObject* o) -> std::optional<ir::SourceId> {
    if (s.isSource()) return s.sourceId();
    if (torchapi::isTensor(o)) {
      if (const auto known = sources_.of(o)) return *known;
    }
    return std::nullopt;
  };
  auto left = sourceId(a, x), right = sourceId(b, y);
  if (left && right) {
    if (*left != *right) guard(x == y ? GuardKind::kSame : GuardKind::kNotSame, *left, ir::kNone, 0, *right);
    return rec_.live();
  }
  if (!left && !right) return true;
  ir::SourceId source = left ? *left : *right;
  Shadow other = left ? b : a;
  PyObject* object = left ? y : x;
  // Made in this trace, so it can't be an older object.
  if (other.isVirtual() || other.isValue()) return true;
  if (x == y) {
    guard(GuardKind::kIs, source, constId(object));
  } else {
    Shadow constant = Shadow::constant();
    guard(GuardKind::kNotSame, source, ir::kNone, 0, sourceOf(constant, object));
  }
  return rec_.live();
}

// Guards everything that `item in container` may look at.
bool Guards::pinContainer(Shadow& shadow, PyObject* container) {
  if (PyAnySet_CheckExact(container)) {
    if (!shadow.isSource()) return true;
    pyapi::Ref<> copy = pyapi::steal(PyFrozenSet_New(container));
    guardType(shadow, container);
    guard(GuardKind::kSetEquals, shadow.sourceId(), constId(copy.get()));
    return rec_.live();
  }
  if (PyDictViewSet_Check(container) && shadow.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(shadow);
    return v.kind == VirtualKind::kDictView && v.index == 0 && pinKeys(v.parts[0], v.partObjects[0].get());
  }
  return tryPinDeep(shadow, container);
}

namespace {

// The keys that a dict had at entry, in order; null if deletions have changed the order.
pyapi::Ref<> keysBefore(PyObject* dict, const Overlay* overlay) {
  pyapi::Ref<> keys = pyapi::steal(PySequence_List(dict));
  if (!keys || overlay == nullptr) return keys;
  if (overlay->dirty || (overlay->deleted && PyDict_GET_SIZE(overlay->deleted.get()) > 0)) return {};
  pyapi::Ref<> before = pyapi::steal(PyList_New(0));
  for (Py_ssize_t i = 0; before && i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    const bool fresh = overlay->fresh && PyDict_Contains(overlay->fresh.get(), key) == 1;
    if (!fresh && PyList_Append(before.get(), key) < 0) return {};
  }
  return before;
}

}  // namespace

// Guards the keys of a dict and their order. Keys that the trace has added come after these.
bool Guards::pinKeys(Shadow shadow, PyObject* dict) {
  if (shadow.isVirtual()) return rec_.objects.virtualOf(shadow).kind != VirtualKind::kOpaque;
  pyapi::Ref<> list = keysBefore(dict, rec_.objects.overlayOf(dict));
  pyapi::Ref<> keys = pyapi::steal(list ? PyList_AsTuple(list.get()) : nullptr);
  if (!keys) {
    PyErr_Clear();
    rec_.abort(diag::Code::KTG0303, {"dict"});
    return false;
  }
  ir::SourceId source = sourceOf(shadow, dict);
  guardType(Shadow::source(source), dict);
  guard(GuardKind::kKeys, source, constId(keys.get()));
  return rec_.live();
}

}  // namespace kintsugi::capture
