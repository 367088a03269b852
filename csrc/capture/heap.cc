// Recorder: reads and writes of globals, cells, dicts and attributes, and truth: what several families share.
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
#include "pyapi/types.h"
#include "support/check.h"
#include "torchapi/global_state.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using ir::Operand;

std::optional<Shadow> Recorder::readGlobal(PyObject* globals, PyObject* builtins, PyObject* name) {
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) {
    abort(diag::Code::KTG0303, {"globals"});
    return std::nullopt;
  }
  Shadow root = pinnedRoot(globals);
  PyObject* value = PyDict_GetItemWithError(globals, name);
  if (value != nullptr) return dictEntry(root, globals, name, value);
  if (!lacksKey(root, globals, name)) return std::nullopt;
  value = PyDict_GetItemWithError(builtins, name);
  if (value == nullptr) return std::nullopt;
  return dictEntry(pinnedRoot(builtins), builtins, name, value);
}

// A dict (of any provenance) has no such key now: where it is old, it had none at the beginning either.
bool Recorder::lacksKey(Shadow shadow, PyObject* dict, PyObject* key) {
  if (shadow.isVirtual()) return virtualOf(shadow).kind != VirtualKind::kOpaque;
  if (Overlay* overlay = overlayOf(dict)) {
    if (overlay->dirty) {
      abort(diag::Code::KTG0303, {"dict"});
      return false;
    }
    if (PyDict_Contains(overlay->deletedKeys(), key) == 1) return true;
  }
  ir::SourceId source = sourceOf(shadow, dict);
  guardType(Shadow::source(source), dict);
  guard(GuardKind::kLacksKey, source, constId(key));
  return live();
}

bool Recorder::storeCell(Shadow cell, PyObject* object, Shadow value, PyObject* real) {
  cell = current(cell);
  if (cell.isVirtual()) {
    Virtual& v = virtualOf(cell);
    if (v.kind != VirtualKind::kCell) {
      abort(diag::Code::KTG0303, {"cell"});
      return false;
    }
    if (v.value != ir::kNone && !emitEffect(Op::kSetCell, {{cell, object}, {value, real}})) return false;
    virtualOf(cell).parts[0] = value;
    touched(cell);
    return true;
  }
  ir::SourceId source = sourceOf(cell, object);
  if (!emitEffect(Op::kSetCell, {{Shadow::source(source), object}, {value, real}})) return false;
  Overlay& overlay = makeOverlay(object);
  pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
  PyDict_SetItem(overlay.entries.get(), Py_None, encoded.get());
  return true;
}

namespace {

// A store that runs no code of others and that no tensor operation can notice.
bool isDeferrableStore(PyObject* target, PyObject* name) {
  if (name == nullptr) return PyDict_CheckExact(target) || PyList_CheckExact(target);
  PyTypeObject* type = Py_TYPE(target);
  PyObject* descriptor = pyapi::lookUpInType(type, name);
  return !torchapi::isTensor(target) && !PyModule_Check(target) && !PyType_Check(target) &&
         pyapi::setsAttributesPlainly(type) &&
         (descriptor == nullptr || !pyapi::hasDescriptorSet(descriptor));
}

}  // namespace

// An effect on something outside the trace: what it stores escapes.
bool Recorder::emitEffect(Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts, PyObject* name) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto [shadow, object] = parts[i];
    if (torchapi::isTensor(object) && !shadow.isVirtual() && !isForeign(shadow, object))
      shadow = tensorShadow(object, shadow);
    if (!live() || !escape(shadow, object)) return false;
    Operand operand;
    if (!operandOf(shadow, object, operand)) {
      abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return false;
    }
    operands.push_back(operand);
    if (i == 0 && name != nullptr) operands.push_back(document_.trace.stringOperand(PyUnicode_AsUTF8(name)));
  }
  size_t at = emit(op, operands, {}, stateBefore());
  document_.trace.code[at].deferrable = op == Op::kSetCell || isDeferrableStore(parts[0].second, name);
  return live();
}

// Do others hold it, or the instance that it is the dict of?
bool isOutside(Recorder& rec, const Virtual& v) {
  return v.value != ir::kNone || (v.shared && rec.virtualOf(v.parts[0]).value != ir::kNone);
}

// dict[key] = value with a plain key. The caller executes it.
bool Recorder::storeItem(Shadow shadow, PyObject* dict, PyObject* key, Shadow value, PyObject* real) {
  if (shadow.isVirtual()) {
    Virtual& v = virtualOf(shadow);
    if (!v.entries || v.kind == VirtualKind::kOpaque) {
      abort(diag::Code::KTG0303, {pyapi::typeNameOf(dict)});
      return false;
    }
    if (isOutside(*this, v) &&
        !emitEffect(Op::kSetItem, {{shadow, dict}, {Shadow::constant(), key}, {value, real}})) {
      return false;
    }
    return setEntry(virtualOf(shadow), key, value);
  }
  if (transforms_.isTransient(*this, dict, key, real)) return transforms_.store(*this, dict, key, value);
  ir::SourceId source = sourceOf(shadow, dict);
  guardType(Shadow::source(source), dict);
  if (!emitEffect(Op::kSetItem, {{Shadow::source(source), dict}, {Shadow::constant(), key}, {value, real}}))
    return false;
  pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
  makeOverlay(dict).written(dict, key, encoded.get());
  return live();
}

bool Recorder::isDirty(PyObject* container) {
  Overlay* overlay = overlayOf(container);
  return hasVaryingLength(*this, container) ||
         (overlay != nullptr && (overlay->dirty || overlay->lengthUnknown()));
}

// The number of elements that a container had at the beginning, which decides how many it has now.
bool Recorder::pinLength(Shadow shadow, PyObject* container) {
  if (!shadow.isSource() && !(shadow.isConst() && !PyTuple_Check(container) && !PyUnicode_Check(container) &&
                              !PyBytes_Check(container) && !PyFrozenSet_Check(container))) {
    if (shadow.isVirtual() && virtualOf(shadow).kind == VirtualKind::kOpaque) {
      abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
    }
    return live();
  }
  Py_ssize_t length = PyDict_Check(container)                               ? PyDict_GET_SIZE(container)
                      : PyAnySet_Check(container)                           ? PySet_GET_SIZE(container)
                      : PyUnicode_Check(container)                          ? PyUnicode_GET_LENGTH(container)
                      : PyList_Check(container) || PyTuple_Check(container) ? Py_SIZE(container)
                                                                            : -1;
  if (length < 0) return pin(shadow, container);
  if (Overlay* overlay = overlayOf(container)) {
    if (overlay->lengthUnknown() && PyDict_Check(container)) return pinKeys(shadow, container);
    if (overlay->dirty || overlay->lengthUnknown()) {
      abort(diag::Code::KTG0303, {pyapi::typeNameOf(container)});
      return false;
    }
    if (overlay->parts) return live();  // the length at the beginning has been pinned
    length -= overlay->grown + static_cast<Py_ssize_t>(overlay->tail.size());
  }
  ir::SourceId source = sourceOf(shadow, container);
  guardLength(Shadow::source(source), container, length);
  return live();
}

bool Recorder::pinIsNone(Shadow shadow, PyObject* object) {
  if (!shadow.isSource()) return true;
  if (object == Py_None) return pin(shadow, object);
  guardType(shadow, object);
  return live();
}

bool Recorder::pinTruth(Shadow shadow, PyObject* object) {
  if (shadow.isValue()) {
    ir::Type type = document_.trace.values[shadow.valueId()];
    ir::ValueId value = shadow.valueId();
    if (type.kind == ir::TypeKind::kObject) return pin(shadow, object);
    if (type.kind != ir::TypeKind::kBool) {
      size_t at = emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}}, ir::kNone);
      value = document_.trace.code[at].firstResult;
    }
    return guardTruth(value, PyObject_IsTrue(object) == 1);
  }
  if (isVaryingText(*this, shadow, object) && !instruction_.isExecuted()) {
    guardType(shadow, object);
    return pinAnswer("truth", {Operand::source(shadow.sourceId())},
                     PyUnicode_GET_LENGTH(object) != 0 ? Py_True : Py_False);
  }
  if (isPlain(object)) return pin(shadow, object);
  PyTypeObject* type = Py_TYPE(object);
  if (shadow.isVirtual() && virtualOf(shadow).kind == VirtualKind::kDeque) return live();
  if (PyList_CheckExact(object) || PyTuple_Check(object) || PyDict_CheckExact(object) ||
      PyAnySet_CheckExact(object) || type == &PyODict_Type) {
    Operand container;
    if (!hasVaryingLength(*this, object) || !operandOf(shadow, object, container))
      return pinLength(shadow, object);
    guardType(shadow, object);
    return pinAnswer("truth", {container}, PyObject_Size(object) != 0 ? Py_True : Py_False);
  }
  if (pyapi::isA(object, pyapi::Known::kNumpyBool)) return pin(shadow, object);  // there is one of each
  if (pyapi::isAlwaysTrue(type)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    return live();
  }
  if (shadow.isConst() && !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return true;
  PyObject* method = specialMethod(type, "__bool__");
  if (method == nullptr) method = specialMethod(type, "__len__");
  if (method != nullptr && PyFunction_Check(method)) {
    guardType(shadow, object);
    guardTypeVersion(type);
    PendingFrame pending = methodFrame(method, shadow, object);
    pending.rebuildable = false;
    pending.pinResult = true;
    expectFrame(std::move(pending));
    return live();
  }
  if (PyDict_Check(object) && method != nullptr && Py_TYPE(method) == &PyWrapperDescr_Type) {
    guardTypeVersion(type);
    return pinLength(shadow, object);
  }
  Operand operand;  // C code says so
  if (!live() || !operandOf(shadow, object, operand)) {
    abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) {
    PyErr_Clear();
    abort(diag::Code::KTG0101, {pyapi::typeName(type)});
    return false;
  }
  return pinAnswer("truth", {operand}, truth == 1 ? Py_True : Py_False);
}

PendingFrame Recorder::methodFrame(PyObject* function, Shadow self, PyObject* object) {
  PendingFrame pending;
  pending.code = PyFunction_GET_CODE(function);
  pending.function = pyapi::newRef(function);
  pending.functionShadow = Shadow::constant();
  pending.args = {object};
  pending.shadows = {self};
  pending.positional = 1;
  pinFunction(function);
  return pending;
}

// A function that is known by identity: its code can still be replaced.
void Recorder::pinFunction(PyObject* function) {
  if (own(*this, Shadow::constant(), function).isVirtual()) return;
  Shadow root = pinnedRoot(function);
  if (!root.isSource()) return;
  guard(GuardKind::kFunction, root.sourceId(), constId(PyFunction_GET_CODE(function)));
}

// Reads the only element of a tensor and guards its truth. The tensor on the stack is replaced by the bool,
// unless the instruction may leave it there.
std::optional<bool> Recorder::tensorTruth(Shadow shadow, PyObject* tensor, bool replace) {
  shadow = tensorShadow(tensor, shadow);
  if (!live()) return std::nullopt;
  if (torchapi::hasModes()) {  // they see the question once
    abort(diag::Code::KTG0301, {"the truth of a tensor under a mode"});
    return std::nullopt;
  }
  ir::StateId snap = stateBefore();
  ops_.resume();
  int truth = PyObject_IsTrue(tensor);
  ops_.pause();
  if (truth < 0) {  // "ambiguous": the instruction will raise the same
    PyErr_Clear();
    ops_.discard();
    exceptions_.setUnsafe(true);
    return std::nullopt;
  }
  torchapi::DrainResult drained = ops_.drain(document_.trace, snap);
  if (drained.status != torchapi::DrainResult::kOk || drained.scalars.size() != 1) {
    abort(diag::Code::KTG0301, {"the truth of a tensor"});
    return std::nullopt;
  }
  ir::ValueId value = drained.scalars[0].value;
  if (document_.trace.values[value].kind != ir::TypeKind::kBool) {
    size_t at = emit(Op::kToBool, {Operand::value(value)}, {{ir::TypeKind::kBool, ir::kNone}}, ir::kNone);
    value = document_.trace.code[at].firstResult;
  }
  if (!guardTruth(value, truth == 1)) return std::nullopt;
  if (replace) {
    PyObject*& slot = frames_.current()->act->peek(1);
    PyObject* old = slot;
    slot = Py_NewRef(truth ? Py_True : Py_False);
    Py_DECREF(old);
  }
  return truth == 1;
}

bool Recorder::recordReturn(ShadowFrame& frame, Shadow shadow, PyObject* object) {
  if (frame.pinResult && !shadow.isConst() && !tryPinDeep(shadow, object)) return live();
  expected_.setResult(frame.pinResult ? Shadow::constant() : shadow);
  if (frame.caller != nullptr) return true;
  shadow = expected_.result();
  if (torchapi::isTensor(object) && !shadow.isVirtual() && !isForeign(shadow, object))
    shadow = tensorShadow(object, shadow);
  Operand operand;
  if (!live() || holdsStandIn(*this, shadow) || !operandOf(shadow, object, operand)) {
    abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  emit(Op::kRet, {operand}, {}, stateBefore());
  return true;
}

// The module that an import statement inside the function found: it must still be what sys.modules holds.
void Recorder::pinImport(PyObject* module, PyObject* name) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* key = name;
  PyObject* entry = PyDict_GetItemWithError(modules, name);
  if (entry == nullptr)
    return;  // relative: the package's own dict decides, and that does not change in practice
  Shadow shadow = dictEntry(pinnedRoot(modules), modules, key, entry);
  pin(shadow, entry);
  if (entry != module) pinnedRoot(module);
}

std::optional<Shadow> Recorder::moduleAttribute(Shadow shadow, PyObject* module, PyObject* name) {
  if (!PyModule_Check(module)) return std::nullopt;
  PyObject* dict = PyModule_GetDict(module);
  PyObject* value = PyDict_GetItemWithError(dict, name);
  if (value == nullptr) return std::nullopt;
  if (shadow.isSource() && !pin(shadow, module)) return std::nullopt;
  ir::SourceId source = sourceOf(shadow, module);
  Shadow dictShadow = readSource(SourceKind::kDict, source, nullptr, 0, dict);
  return dictEntry(dictShadow, dict, name, value);
}

}  // namespace kintsugi::capture
