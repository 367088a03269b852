// Guards: pinning what is used of an object: its length, its truth, whether it is None.
#include <string>

#include "capture/classes.h"
#include "capture/enum_member.h"
#include "capture/open_values.h"
#include "capture/record_context.h"
#include "capture/sizes.h"
#include "capture/special_methods.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;
using ir::Op;
using ir::Operand;

// Pins the number of elements that the container has at entry, from which its length now follows.
bool Guards::pinLength(Shadow shadow, PyObject* container) {
  if (!shadow.isSource() && !(shadow.isConst() && !PyTuple_Check(container) && !PyUnicode_Check(container) &&
                              !PyBytes_Check(container) && !PyFrozenSet_Check(container))) {
    if (shadow.isVirtual() && rec_.objects.virtualOf(shadow).kind == VirtualKind::kOpaque) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
    }
    return rec_.live();
  }
  Py_ssize_t length = PyDict_Check(container)                               ? PyDict_GET_SIZE(container)
                      : PyAnySet_Check(container)                           ? PySet_GET_SIZE(container)
                      : PyUnicode_Check(container)                          ? PyUnicode_GET_LENGTH(container)
                      : PyList_Check(container) || PyTuple_Check(container) ? Py_SIZE(container)
                                                                            : -1;
  if (length < 0) return pin(shadow, container);
  if (Overlay* overlay = rec_.objects.overlayOf(container)) {
    if (overlay->lengthUnknown() && PyDict_Check(container)) return pinKeys(shadow, container);
    if (overlay->dirty || overlay->lengthUnknown()) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
      return false;
    }
    if (!rec_.objects.fitsList(*overlay)) return false;
    if (overlay->parts) return rec_.live();  // the length at entry is already pinned
    length -= overlay->grown + static_cast<Py_ssize_t>(overlay->tail.size());
  }
  ir::SourceId source = sourceOf(shadow, container);
  guardLength(Shadow::source(source), container, length);
  return rec_.live();
}

bool Guards::pinIsNone(Shadow shadow, PyObject* object) {
  if (!shadow.isSource()) return true;
  if (object == Py_None) return pin(shadow, object);
  guardType(shadow, object);
  return rec_.live();
}

bool Guards::pinTruth(Shadow shadow, PyObject* object) {
  if (shadow.isValue()) {
    ir::Type type = document_.trace.values[shadow.valueId()];
    ir::ValueId value = shadow.valueId();
    if (type.kind == ir::TypeKind::kObject) return pin(shadow, object);
    if (type.kind != ir::TypeKind::kBool) {
      size_t at = rec_.steps.emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}},
                                  ir::kNone);
      value = document_.trace.code[at].firstResult;
    }
    return guardTruth(value, PyObject_IsTrue(object) == 1);
  }
  if (isVaryingText(rec_, shadow, object) && !instruction_.isExecuted()) {
    guardType(shadow, object);
    return pinAnswer("truth", {Operand::source(shadow.sourceId())},
                     PyUnicode_GET_LENGTH(object) != 0 ? Py_True : Py_False);
  }
  if (isPlain(object)) return pin(shadow, object);
  PyTypeObject* type = Py_TYPE(object);
  if (shadow.isVirtual() && rec_.objects.virtualOf(shadow).kind == VirtualKind::kDeque) return rec_.live();
  if (PyList_CheckExact(object) || PyTuple_Check(object) || PyDict_CheckExact(object) ||
      PyAnySet_CheckExact(object) || type == &PyODict_Type) {
    Operand container;
    if (!hasVaryingLength(rec_, object) || !rec_.snapshots.operandOf(shadow, object, container))
      return pinLength(shadow, object);
    guardType(shadow, object);
    return pinAnswer("truth", {container}, PyObject_Size(object) != 0 ? Py_True : Py_False);
  }
  // True and False of numpy are singletons.
  if (pyapi::isA(object, pyapi::Known::kNumpyBool)) return pin(shadow, object);
  if (pyapi::isAlwaysTrue(type)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    return rec_.live();
  }
  if (shadow.isConst() && !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return true;
  PyObject* method = specialMethod(type, "__bool__");
  if (method == nullptr) method = specialMethod(type, "__len__");
  if (method != nullptr && PyFunction_Check(method)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    PendingFrame pending = rec_.callees.methodFrame(method, shadow, object);
    pending.rebuildable = false;
    pending.pinResult = true;
    rec_.callees.expectFrame(std::move(pending));
    return rec_.live();
  }
  if (PyDict_Check(object) && method != nullptr && Py_TYPE(method) == &PyWrapperDescr_Type) {
    guardTypeVersion(type);
    return pinLength(shadow, object);
  }
  Operand operand;  // C code decides the truth
  if (!rec_.live() || !rec_.snapshots.operandOf(shadow, object, operand)) {
    rec_.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) {
    PyErr_Clear();
    rec_.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  return pinAnswer("truth", {operand}, truth == 1 ? Py_True : Py_False);
}

// A function is pinned by its identity and its code, since a program may assign to `__code__`.
void Guards::pinFunction(PyObject* function) {
  if (virtualShadowOf(rec_, Shadow::constant(), function).isVirtual()) return;
  Shadow root = pinnedRoot(function);
  if (!root.isSource()) return;
  guard(GuardKind::kFunction, root.sourceId(), constId(PyFunction_GET_CODE(function)));
}

// Pins the module that an import statement inside a function found: sys.modules must still hold it.
void Guards::pinImport(PyObject* module, PyObject* name) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* key = name;
  PyObject* entry = PyDict_GetItemWithError(modules, name);
  // A relative import reads the package's own dict, which does not change in practice.
  if (entry == nullptr) return;
  Shadow shadow = rec_.objects.dictEntry(pinnedRoot(modules), modules, key, entry);
  pin(shadow, entry);
  if (entry != module) pinnedRoot(module);
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
