// Heap: reads and writes of globals, cells and dicts. Guards: lengths and truth.
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "capture/classes.h"
#include "capture/foreign.h"
#include "capture/lists.h"
#include "capture/open_values.h"
#include "capture/stand_ins.h"
#include "pyapi/known_objects.h"
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/global_state.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using ir::Operand;

std::optional<Shadow> Heap::readGlobal(PyObject* globals, PyObject* builtins, PyObject* name) {
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) {
    rec_.abort(diag::Code::KTG0303, {"globals"});
    return std::nullopt;
  }
  Shadow root = rec_.guards.pinnedRoot(globals);
  PyObject* value = PyDict_GetItemWithError(globals, name);
  if (value != nullptr) return rec_.objects.dictEntry(root, globals, name, value);
  if (!lacksKey(root, globals, name)) return std::nullopt;
  value = PyDict_GetItemWithError(builtins, name);
  if (value == nullptr) return std::nullopt;
  return rec_.objects.dictEntry(rec_.guards.pinnedRoot(builtins), builtins, name, value);
}

// The dict has no such key now. If the dict is older than the trace, guards that it has none at entry.
bool Heap::lacksKey(Shadow shadow, PyObject* dict, PyObject* key) {
  if (shadow.isVirtual()) {
    const Virtual& v = rec_.objects.virtualOf(shadow);
    if (rec_.objects.entryOf(v, key)) rec_.abort(diag::Code::KTG0303, {"dict"});  // deleted by another thread
    return rec_.live() && v.kind != VirtualKind::kOpaque;
  }
  if (Overlay* overlay = rec_.objects.overlayOf(dict)) {
    if (overlay->dirty) {
      rec_.abort(diag::Code::KTG0303, {"dict"});
      return false;
    }
    rec_.objects.readBack(overlay->entries, key, dict, nullptr);  // written, so another thread has deleted it
    if (!rec_.live() || overlay->isDeleted(key)) return rec_.live();
  }
  ir::SourceId source = rec_.guards.sourceOf(shadow, dict);
  rec_.guards.guardType(Shadow::source(source), dict);
  rec_.guards.guard(GuardKind::kLacksKey, source, rec_.guards.constId(key));
  return rec_.live();
}

bool Heap::storeCell(Shadow cell, PyObject* object, Shadow value, PyObject* real) {
  cell = rec_.objects.current(cell);
  if (cell.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(cell);
    if (v.kind != VirtualKind::kCell) {
      rec_.abort(diag::Code::KTG0303, {"cell"});
      return false;
    }
    if (v.value != ir::kNone && !emitEffect(Op::kSetCell, {{cell, object}, {value, real}})) return false;
    rec_.objects.virtualOf(cell).parts[0] = value;
    rec_.objects.noteChange(cell);
    return true;
  }
  ir::SourceId source = rec_.guards.sourceOf(cell, object);
  if (!emitEffect(Op::kSetCell, {{Shadow::source(source), object}, {value, real}})) return false;
  rec_.objects.makeOverlay(object).entries.note(Py_None, value, real);
  return true;
}

namespace {

// A store that calls no code of others, and that no tensor operation can notice. An attribute is stored as
// object.__setattr__ does it: what a `__setattr__` of the class does besides has been recorded.
bool isDeferrableStore(PyObject* target, PyObject* name) {
  if (name == nullptr) return PyDict_CheckExact(target) || PyList_CheckExact(target);
  PyTypeObject* type = Py_TYPE(target);
  PyObject* descriptor = pyapi::lookUpInType(type, name);
  return !torchapi::isTensor(target) && !PyModule_Check(target) && !PyType_Check(target) &&
         (descriptor == nullptr || !pyapi::hasDescriptorSet(descriptor));
}

}  // namespace

// Emits an effect on something older than the trace. The stored objects escape.
bool Heap::emitEffect(Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts, PyObject* name) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto [shadow, object] = parts[i];
    if (torchapi::isTensor(object) && !shadow.isVirtual() && !isForeign(shadow, object))
      shadow = rec_.guards.tensorShadow(object, shadow);
    if (!rec_.live() || !rec_.snapshots.escape(shadow, object)) return false;
    Operand operand;
    if (!rec_.snapshots.operandOf(shadow, object, operand)) {
      rec_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return false;
    }
    operands.push_back(operand);
    if (i == 0 && name != nullptr) operands.push_back(document_.trace.stringOperand(PyUnicode_AsUTF8(name)));
  }
  size_t at = rec_.steps.emit(op, operands, {}, rec_.snapshots.stateBefore());
  document_.trace.code[at].deferrable = op == Op::kSetCell || isDeferrableStore(parts[0].second, name);
  return rec_.live();
}

// True if the dict, or the instance that it belongs to, has been built and others may see it.
bool isOutside(RecordContext& rec, const Virtual& v) {
  return v.value != ir::kNone || (v.shared && rec.objects.virtualOf(v.parts[0]).value != ir::kNone);
}

// Records `dict[key] = value` for a plain key. The caller executes the store.
bool Heap::storeItem(Shadow shadow, PyObject* dict, PyObject* key, Shadow value, PyObject* real, Op op) {
  if (shadow.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(shadow);
    if (!v.entries || v.kind == VirtualKind::kOpaque) {
      rec_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(dict)});
      return false;
    }
    if (isOutside(rec_, v) && !emitEffect(op, {{shadow, dict}, {Shadow::constant(), key}, {value, real}})) {
      return false;
    }
    return rec_.objects.setEntry(rec_.objects.virtualOf(shadow), key, value);
  }
  if (transforms_.isTransient(rec_, dict, key, real)) return transforms_.store(rec_, dict, key, value, real);
  ir::SourceId source = rec_.guards.sourceOf(shadow, dict);
  rec_.guards.guardType(Shadow::source(source), dict);
  if (!emitEffect(op, {{Shadow::source(source), dict}, {Shadow::constant(), key}, {value, real}}))
    return false;
  rec_.objects.makeOverlay(dict).written(dict, key, value, real);
  return rec_.live();
}

bool Objects::isDirty(PyObject* container) {
  Overlay* overlay = overlayOf(container);
  return hasVaryingLength(rec_, container) ||
         (overlay != nullptr && (overlay->dirty || overlay->lengthUnknown()));
}

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

PendingFrame Callees::methodFrame(PyObject* function, Shadow self, PyObject* object) {
  PendingFrame pending;
  pending.code = PyFunction_GET_CODE(function);
  pending.function = pyapi::newRef(function);
  pending.functionShadow = Shadow::constant();
  pending.args = {object};
  pending.shadows = {self};
  pending.positional = 1;
  rec_.guards.pinFunction(function);
  return pending;
}

// A function is pinned by its identity and its code, since a program may assign to `__code__`.
void Guards::pinFunction(PyObject* function) {
  if (virtualShadowOf(rec_, Shadow::constant(), function).isVirtual()) return;
  Shadow root = pinnedRoot(function);
  if (!root.isSource()) return;
  guard(GuardKind::kFunction, root.sourceId(), constId(PyFunction_GET_CODE(function)));
}

// Reads the only element of a tensor and guards its truth. Replaces the tensor on the stack by the bool,
// unless the instruction has to find the tensor there.
std::optional<bool> TorchSteps::tensorTruth(Shadow shadow, PyObject* tensor, bool replace) {
  shadow = rec_.guards.tensorShadow(tensor, shadow);
  if (!rec_.live()) return std::nullopt;
  if (torchapi::hasModes()) {  // a mode must see the question only once
    rec_.abort(diag::Code::KTG0301, {"the truth of a tensor under a mode"});
    return std::nullopt;
  }
  ir::StateId snap = rec_.snapshots.stateBefore();
  ops_.resume();
  int truth = PyObject_IsTrue(tensor);
  ops_.pause();
  if (truth < 0) {  // "ambiguous": the instruction raises the same error itself
    PyErr_Clear();
    ops_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
  if (drained.status != torchapi::DrainResult::kOk || drained.scalars.size() != 1) {
    rec_.abort(diag::Code::KTG0301, {"the truth of a tensor"});
    return std::nullopt;
  }
  ir::ValueId value = drained.scalars[0].value;
  if (document_.trace.values[value].kind != ir::TypeKind::kBool) {
    size_t at =
        rec_.steps.emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}}, ir::kNone);
    value = document_.trace.code[at].firstResult;
  }
  if (!rec_.guards.guardTruth(value, truth == 1)) return std::nullopt;
  if (replace) {
    PyObject*& slot = frames_.current()->act->peek(1);
    PyObject* old = slot;
    slot = Py_NewRef(truth ? Py_True : Py_False);
    Py_DECREF(old);
  }
  return truth == 1;
}

bool Callees::recordReturn(ShadowFrame& frame, Shadow shadow, PyObject* object) {
  if (frame.pinResult && !shadow.isConst() && !rec_.guards.tryPinDeep(shadow, object)) return rec_.live();
  expected_.setResult(frame.pinResult ? Shadow::constant() : shadow);
  if (frame.caller != nullptr) return true;
  shadow = expected_.result();
  if (torchapi::isTensor(object) && !shadow.isVirtual() && !isForeign(shadow, object))
    shadow = rec_.guards.tensorShadow(object, shadow);
  Operand operand;
  if (!rec_.live() || holdsStandIn(rec_, shadow) || !rec_.snapshots.operandOf(shadow, object, operand)) {
    rec_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  rec_.steps.emit(Op::kRet, {operand}, {}, rec_.snapshots.stateBefore());
  return true;
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

std::optional<Shadow> Heap::moduleAttribute(Shadow shadow, PyObject* module, PyObject* name) {
  if (!PyModule_Check(module)) return std::nullopt;
  PyObject* dict = PyModule_GetDict(module);
  PyObject* value = PyDict_GetItemWithError(dict, name);
  if (value == nullptr) return std::nullopt;
  if (shadow.isSource() && !rec_.guards.pin(shadow, module)) return std::nullopt;
  ir::SourceId source = rec_.guards.sourceOf(shadow, module);
  Shadow dictShadow = rec_.guards.readSource(SourceKind::kDict, source, nullptr, 0, dict);
  return rec_.objects.dictEntry(dictShadow, dict, name, value);
}

}  // namespace kintsugi::capture
