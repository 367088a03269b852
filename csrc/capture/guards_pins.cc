// Guards: pinning what is used of an object: its length, its truth, whether it is None.
#include <optional>
#include <string>

#include "capture/call_context.h"
#include "capture/enum_member.h"
#include "capture/guards.h"
#include "capture/hashes.h"
#include "capture/plain_objects.h"
#include "capture/special_methods.h"
#include "ir/value_maker.h"
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
    if (shadow.isVirtual() && virtuals_[shadow].kind == VirtualKind::kOpaque) {
      roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
    }
    return roles_.breaks.isLive();
  }
  Py_ssize_t length = PyDict_Check(container)                               ? PyDict_GET_SIZE(container)
                      : PyAnySet_Check(container)                           ? PySet_GET_SIZE(container)
                      : PyUnicode_Check(container)                          ? PyUnicode_GET_LENGTH(container)
                      : PyList_Check(container) || PyTuple_Check(container) ? Py_SIZE(container)
                                                                            : -1;
  if (length < 0) return pin(shadow, container);
  if (Overlay* overlay = overlays_.find(container)) {
    if (overlay->lengthUnknown() && PyDict_Check(container)) return pinKeys(shadow, container);
    if (overlay->dirty || overlay->lengthUnknown()) {
      roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
      return false;
    }
    if (!roles_.sequences.fitsList(*overlay)) return false;
    if (overlay->parts) return roles_.breaks.isLive();  // the length at entry is already pinned
    length -= overlay->grown + static_cast<Py_ssize_t>(overlay->tail.size());
  }
  ir::SourceId source = sourceOf(shadow, container);
  guardLength(Shadow::source(source), container, length);
  return roles_.breaks.isLive();
}

bool Guards::pinIsNone(Shadow shadow, PyObject* object) {
  if (!shadow.isSource()) return true;
  if (object == Py_None) return pin(shadow, object);
  guardType(shadow, object);
  return roles_.breaks.isLive();
}

bool Guards::pinTruth(Shadow shadow, PyObject* object) {
  if (shadow.isValue()) {
    ir::Type type = document_.trace.values[shadow.valueId()];
    ir::ValueId value = shadow.valueId();
    if (type.kind == ir::TypeKind::kObject) return pin(shadow, object);
    if (type.kind != ir::TypeKind::kBool) {
      size_t at = roles_.writer.emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}},
                                     ir::kNone);
      value = document_.trace.code[at].firstResult;
    }
    return guardTruth(value, PyObject_IsTrue(object) == 1);
  }
  if (roles_.varying.isVaryingText(shadow, object) && !instruction_.isExecuted()) {
    guardType(shadow, object);
    return pinAnswer("truth", {Operand::source(shadow.sourceId())},
                     PyUnicode_GET_LENGTH(object) != 0 ? Py_True : Py_False);
  }
  if (isPlain(object)) return pin(shadow, object);
  PyTypeObject* type = Py_TYPE(object);
  if (shadow.isVirtual() && virtuals_[shadow].kind == VirtualKind::kDeque) return roles_.breaks.isLive();
  if (PyList_CheckExact(object) || PyTuple_Check(object) || PyDict_CheckExact(object) ||
      PyAnySet_CheckExact(object) || type == &PyODict_Type) {
    Operand container;
    if (!roles_.varying.hasVaryingLength(object) || !roles_.snapshots.operandOf(shadow, object, container))
      return pinLength(shadow, object);
    guardType(shadow, object);
    return pinAnswer("truth", {container}, PyObject_Size(object) != 0 ? Py_True : Py_False);
  }
  // True and False of numpy are singletons.
  if (pyapi::isA(object, pyapi::Known::kNumpyBool)) return pin(shadow, object);
  if (pyapi::isAlwaysTrue(type)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    return roles_.breaks.isLive();
  }
  if (shadow.isConst() && !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return true;
  PyObject* method = specialMethod(type, "__bool__");
  if (method == nullptr) method = specialMethod(type, "__len__");
  if (method != nullptr && PyFunction_Check(method)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    PendingFrame pending = roles_.frames.methodFrame(method, shadow, object);
    pending.rebuildable = false;
    pending.pinResult = true;
    roles_.frames.expectFrame(std::move(pending));
    return roles_.breaks.isLive();
  }
  if (PyDict_Check(object) && method != nullptr && Py_TYPE(method) == &PyWrapperDescr_Type) {
    guardTypeVersion(type);
    return pinLength(shadow, object);
  }
  // A partial, say, or a static method: asking here would be once more than the program asks.
  if (method != nullptr && Py_TYPE(method) != &PyWrapperDescr_Type) {
    roles_.breaks.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  Operand operand;  // C code decides the truth
  if (!roles_.breaks.isLive() || !roles_.snapshots.operandOf(shadow, object, operand)) {
    roles_.breaks.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) {
    PyErr_Clear();
    roles_.breaks.abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  guardType(shadow, object);
  return pinAnswer("truth", {operand}, truth == 1 ? Py_True : Py_False);
}

// A function is pinned by its identity and its code, since a program may assign to `__code__`.
void Guards::pinFunction(PyObject* function) {
  if (virtuals_.shadowOf(Shadow::constant(), function).isVirtual()) return;
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
  Shadow shadow = roles_.reads.dictEntry(pinnedRoot(modules), modules, key, entry);
  pin(shadow, entry);
  if (entry != module) pinnedRoot(module);
}

bool Guards::canPinDeep(Shadow shadow, PyObject* object) {
  if (object == nullptr || shadow.isNull()) return true;
  if (torchapi::isTensor(object)) return false;
  if (shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
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

// An operator may give its argument back where sizes or strides are others. If one of two tensors that are
// compared is the result of such a one, the metadata of both are pinned.
bool Guards::pinGivenBack(PyObject* x, PyObject* y) {
  const auto left = ops_.valueOf(x), right = ops_.valueOf(y);
  if (!left || !right || (!ops_.isMaybeArgument(*left) && !ops_.isMaybeArgument(*right))) return true;
  return roles_.sizes.pinMeta(Shadow::value(*left), x) && roles_.sizes.pinMeta(Shadow::value(*right), y);
}

namespace {

// A number that was read is the object that it was read from. What the parent of a side trace has read, but
// for arguments, may be gone.
std::optional<ir::SourceId> sourceOfInput(const guard::Document& document, ir::ValueId value,
                                          guard::BlockId root) {
  const ir::Instruction* maker = ir::makerOf(document.trace, value);
  if (maker == nullptr || maker->op != ir::Op::kInput) return std::nullopt;
  const ir::SourceId source = document.trace.operandsOf(*maker)[0].id;
  const guard::SourceNode& node = document.sources.nodes[source];
  return node.kind == guard::SourceKind::kArg || node.block >= root ? std::optional(source) : std::nullopt;
}

}  // namespace

bool Guards::isInput(ir::ValueId value) const {
  const ir::Instruction* maker = ir::makerOf(document_.trace, value);
  return maker != nullptr && maker->op == Op::kInput;
}

// Containers find a NaN by its identity alone. One that the trace has computed is another object than those
// that are older.
void Guards::pinNan(ir::ValueId value, PyObject* nan) {
  const auto read = sourceOfInput(document_, value, blocks_.root());
  if (!read) return;
  PyObject* known = sources_.objectOf(*read);  // null: a side trace has not read it again
  if (known == nullptr || known == nan) guard(GuardKind::kIs, *read, constId(nan));
}

bool Guards::guardAsRead(ir::ValueId value, PyObject* number) {
  const ir::Instruction* maker = ir::makerOf(document_.trace, value);
  if (maker == nullptr || maker->op != Op::kInput) return guardScalar(value, number);
  const ir::SourceId source = document_.trace.operandsOf(*maker)[0].id;
  const guard::SourceNode& node = document_.sources.nodes[source];
  const bool isElement =
      node.kind == guard::SourceKind::kListItem || node.kind == guard::SourceKind::kTupleItem;
  if (!isElement || node.block <= blocks_.root() || !comesFromStep(Shadow::source(source)))
    return guardScalar(value, number);
  if (torchCalls_.pinNumber(value)) guard(GuardKind::kEquals, source, constId(number));
  return roles_.breaks.isLive();
}

// Guards the answer to `x is y`.
bool Guards::pinIdentity(Shadow a, PyObject* x, Shadow b, PyObject* y) {
  if (torchapi::isTensor(x) && torchapi::isTensor(y) && !pinGivenBack(x, y)) return false;
  if (a.isSource() && (y == Py_None || x == Py_None) && b.isConst()) return pinIsNone(a, x);
  if (b.isSource() && (x == Py_None || y == Py_None) && a.isConst()) return pinIsNone(b, y);
  // A run-time number is no object of another type, whatever its value (`n is None`).
  const auto isNumber = [](Shadow shadow, PyObject* object) {
    return shadow.isValue() && (PyLong_CheckExact(object) || PyFloat_CheckExact(object));
  };
  if (Py_TYPE(x) != Py_TYPE(y) && (isNumber(a, x) || isNumber(b, y))) {
    guardType(isNumber(a, x) ? b : a, isNumber(a, x) ? y : x);
    return roles_.breaks.isLive();
  }
  for (auto [shadow, object] : {std::pair(&a, x), std::pair(&b, y)}) {
    if (!shadow->isValue() || torchapi::isTensor(object)) continue;
    if (const auto read = sourceOfInput(document_, shadow->valueId(), blocks_.root())) {
      *shadow = Shadow::source(*read);
    } else if (!pin(*shadow, object)) {
      return false;
    }
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
    return roles_.breaks.isLive();
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
  return roles_.breaks.isLive();
}

bool Guards::pinMembership(Shadow& shadow, PyObject* container, PyObject* item) {
  // What the trace has added to the set, or has taken from it, is not there at entry.
  const bool asAtEntry =
      PyAnySet_CheckExact(container) && shadow.isSource() && overlays_.find(container) == nullptr;
  const pyapi::Lookup found = asAtEntry ? pyapi::lookUpInSet(container, item) : pyapi::Lookup::kUnknown;
  if (found == pyapi::Lookup::kUnknown) return pinContainer(shadow, container);
  guardType(shadow, container);
  guard(found == pyapi::Lookup::kFound ? GuardKind::kElement : GuardKind::kNoElement, shadow.sourceId(),
        constId(item));
  return roles_.breaks.isLive();
}

// Guards everything that `item in container` may look at.
bool Guards::pinContainer(Shadow& shadow, PyObject* container) {
  if (PyAnySet_CheckExact(container)) {
    if (!shadow.isSource()) return true;
    // Effects may have changed it. A constant that was added or discarded changes nothing in a set that holds
    // at entry what this one holds now; what varies may.
    const Overlay* overlay = overlays_.find(container);
    if (overlay != nullptr && overlay->varies) return false;
    pyapi::Ref<> copy = pyapi::steal(PyFrozenSet_New(container));
    guardType(shadow, container);
    guard(GuardKind::kSetEquals, shadow.sourceId(), constId(copy.get()));
    return roles_.breaks.isLive();
  }
  if (PyDictViewSet_Check(container) && shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
    return v.kind == VirtualKind::kDictView && v.index == 0 && pinKeys(v.parts[0], v.partObjects[0].get());
  }
  return tryPinDeep(shadow, container);
}

namespace {

// Is it one of the keys that the trace has added? Those that the program hashes are found by identity.
bool isFresh(PyObject* added, PyObject* key) {
  if (!isHashedInPython(key)) return PyDict_Contains(added, key) == 1;
  PyObject *other = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(added, &position, &other, &value) != 0) {
    if (other == key) return true;
  }
  return false;
}

// The keys that a dict had at entry, in order; null if deletions have changed the order.
pyapi::Ref<> keysBefore(PyObject* dict, const Overlay* overlay) {
  pyapi::Ref<> keys = pyapi::steal(PySequence_List(dict));
  if (!keys || overlay == nullptr) return keys;
  if (overlay->dirty || (overlay->deleted && PyDict_GET_SIZE(overlay->deleted.get()) > 0)) return {};
  pyapi::Ref<> before = pyapi::steal(PyList_New(0));
  for (Py_ssize_t i = 0; before && i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    const bool fresh = overlay->fresh && isFresh(overlay->fresh.get(), key);
    if (!fresh && PyList_Append(before.get(), key) < 0) return {};
  }
  return before;
}

}  // namespace

// Guards the keys of a dict and their order. Keys that the trace has added come after these.
bool Guards::pinKeys(Shadow shadow, PyObject* dict) {
  if (shadow.isVirtual()) return virtuals_[shadow].kind != VirtualKind::kOpaque;
  pyapi::Ref<> list = keysBefore(dict, overlays_.find(dict));
  pyapi::Ref<> keys = pyapi::steal(list ? PyList_AsTuple(list.get()) : nullptr);
  if (!keys) {
    PyErr_Clear();
    roles_.breaks.abort(diag::Code::KTG0303, {"dict"});
    return false;
  }
  ir::SourceId source = sourceOf(shadow, dict);
  guardType(Shadow::source(source), dict);
  guard(GuardKind::kKeys, source, constId(keys.get()));
  return roles_.breaks.isLive();
}

}  // namespace kintsugi::capture
