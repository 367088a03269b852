// Heap: reads of globals, and writes to cells, dicts and lists.
#include "capture/heap.h"

#include <string_view>

#include "capture/special_methods.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using ir::Operand;

std::optional<Shadow> Heap::readGlobal(PyObject* globals, PyObject* builtins, PyObject* name) {
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) {
    breaks_.abort(diag::Code::KTG0303, {"globals"});
    return std::nullopt;
  }
  Shadow root = guards_.pinnedRoot(globals);
  PyObject* value = PyDict_GetItemWithError(globals, name);
  if (value != nullptr) return reads_.dictEntry(root, globals, name, value);
  if (!lacksKey(root, globals, name)) return std::nullopt;
  value = PyDict_GetItemWithError(builtins, name);
  const Shadow others = guards_.pinnedRoot(builtins);
  if (value != nullptr) return reads_.dictEntry(others, builtins, name, value);
  lacksKey(others, builtins, name);  // the run raises NameError
  return std::nullopt;
}

// The dict has no such key now. If the dict is older than the trace, guards that it has none at entry.
bool Heap::lacksKey(Shadow shadow, PyObject* dict, PyObject* key) {
  if (shadow.isVirtual()) {
    const Virtual& v = virtuals_[shadow];
    if (virtuals_.entryOf(v, key)) breaks_.abort(diag::Code::KTG0303, {"dict"});  // deleted by another thread
    return breaks_.isLive() && v.kind != VirtualKind::kOpaque;
  }
  if (Overlay* overlay = overlays_.find(dict)) {
    if (overlay->dirty) {
      breaks_.abort(diag::Code::KTG0303, {"dict"});
      return false;
    }
    reads_.readBack(overlay->entries, key, dict, nullptr);  // written, so another thread has deleted it
    if (!breaks_.isLive() || overlay->isDeleted(key)) return breaks_.isLive();
  }
  ir::SourceId source = guards_.sourceOf(shadow, dict);
  guards_.guardType(Shadow::source(source), dict);
  guards_.guard(GuardKind::kLacksKey, source, guards_.constId(key));
  return breaks_.isLive();
}

bool Heap::storeCell(Shadow cell, PyObject* object, Shadow value, PyObject* real) {
  cell = reads_.current(cell);
  if (cell.isVirtual()) {
    Virtual& v = virtuals_[cell];
    if (v.kind != VirtualKind::kCell) {
      breaks_.abort(diag::Code::KTG0303, {"cell"});
      return false;
    }
    if (v.value != ir::kNone && !emitEffect(Op::kSetCell, {{cell, object}, {value, real}})) return false;
    virtuals_[cell].parts[0] = value;
    virtuals_.noteChange(cell);
    return true;
  }
  ir::SourceId source = guards_.sourceOf(cell, object);
  if (!emitEffect(Op::kSetCell, {{Shadow::source(source), object}, {value, real}})) return false;
  reads_.makeOverlay(object).entries.note(Py_None, value, real);
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

bool Heap::emitEffect(Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts, PyObject* name) {
  const ir::StateId before = snapshots_.stateBefore();
  PyObject* target = parts[0].second;
  PyObject* key = name != nullptr || parts.size() < 2 ? name : parts[1].second;
  PyObject* step = writes_.stepFor(op, target, key, before);
  std::vector<Operand> operands;
  if (step != nullptr) operands.push_back(Operand::constant(guards_.constId(step)));
  for (size_t i = 0; i < parts.size(); ++i) {
    auto [shadow, object] = parts[i];
    shadow = guards_.valueOfTensor(shadow, object);
    if (!breaks_.isLive() || !snapshots_.escape(shadow, object)) return false;
    Operand operand;
    if (!snapshots_.operandOf(shadow, object, operand)) {
      breaks_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
      return false;
    }
    operands.push_back(operand);
    if (i == 0 && name != nullptr) {
      operands.push_back(step != nullptr ? Operand::constant(guards_.constId(name))
                                         : trace_.stringOperand(pyapi::encoded(name)));
    }
  }
  if (step != nullptr)
    return emitWriteStep(operands, target, name != nullptr ? "__setattr__" : "__setitem__");
  size_t at = writer_.emit(op, operands, {}, snapshots_.stateBefore());
  trace_.code[at].deferrable = op == Op::kSetCell || isDeferrableStore(target, name);
  return breaks_.isLive();
}

bool Heap::emitWriteStep(const std::vector<Operand>& operands, PyObject* target, const char* method) {
  if (!snapshots_.escapeHandled()) return false;
  const ir::StateId before = snapshots_.stateBefore();
  if (!breaks_.isStrict()) {
    breaks_.noteBreak(diag::Code::KTG0101,
                      {std::string(pyapi::typeNameOf(target)) + "." + method + " (which ends an object)"});
  }
  writer_.emit(Op::kCall, operands, {{ir::TypeKind::kObject, ir::kNone}}, before);
  return breaks_.isLive();
}

// True if the dict, or the instance that it belongs to, has been built and others may see it.
bool Heap::isOutside(const Virtual& v) const {
  return v.value != ir::kNone || (v.shared && virtuals_[v.parts[0]].value != ir::kNone);
}

// Records `dict[key] = value` for a plain key. The caller executes the store.
bool Heap::storeItem(Shadow shadow, PyObject* dict, PyObject* key, Shadow value, PyObject* real, Op op) {
  if (shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
    if (!v.entries || v.kind == VirtualKind::kOpaque) {
      breaks_.abort(diag::Code::KTG0303, {pyapi::typeNameOf(dict)});
      return false;
    }
    if (isOutside(v) && !emitEffect(op, {{shadow, dict}, {Shadow::constant(), key}, {value, real}})) {
      return false;
    }
    return virtuals_.setEntry(virtuals_[shadow], key, value);
  }
  if (const auto stored = filter_.storeTransient(dict, key, value, real)) return *stored;
  ir::SourceId source = guards_.sourceOf(shadow, dict);
  guards_.guardType(Shadow::source(source), dict);
  if (!emitEffect(op, {{Shadow::source(source), dict}, {Shadow::constant(), key}, {value, real}}))
    return false;
  reads_.makeOverlay(dict).written(dict, key, value, real);
  return breaks_.isLive();
}

std::optional<Shadow> Heap::moduleAttribute(Shadow shadow, PyObject* module, PyObject* name) {
  if (!PyModule_Check(module)) return std::nullopt;
  PyObject* dict = PyModule_GetDict(module);
  PyObject* value = PyDict_GetItemWithError(dict, name);
  if (value == nullptr) return std::nullopt;
  if (shadow.isSource() && !guards_.pin(shadow, module)) return std::nullopt;
  ir::SourceId source = guards_.sourceOf(shadow, module);
  Shadow dictShadow = guards_.readSource(SourceKind::kDict, source, nullptr, 0, dict);
  return reads_.dictEntry(dictShadow, dict, name, value);
}

bool Heap::canLeave() { return trace_.states[snapshots_.stateBefore()].rebuildable; }

bool Heap::emitDelete(Shadow target, const Deletion& deletion, Shadow item, PyObject* real) {
  const auto& [shadow, dict, key, raisesKeyError, takes] = deletion;
  const bool leaves = canLeave();
  if (!raisesKeyError && !leaves) {
    breaks_.abort(diag::Code::KTG0103, {"a key that another thread may delete"});
    return false;
  }
  const std::pair<Shadow, PyObject*> container = {target, dict}, at = {Shadow::constant(), key};
  return takes && leaves ? emitEffect(Op::kTakeItem, {container, at, {item, real}})
                         : emitEffect(Op::kDelItem, {container, at});
}

bool Heap::deleteEntry(const Deletion& deletion) {
  const auto& [shadow, dict, key, raisesKeyError, takes] = deletion;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  PyErr_Clear();
  if (value == nullptr) return lacksKey(shadow, dict, key);
  if (shadow.isVirtual()) {
    Virtual& v = virtuals_[shadow];
    if (!v.entries || v.kind == VirtualKind::kOpaque) return false;
    const auto item = virtuals_.entryOf(v, key);
    if (!item) {
      breaks_.abort(diag::Code::KTG0303, {"dict"});
      return false;
    }
    if (isOutside(v) && !emitDelete(shadow, deletion, *item, value)) return false;
    if (PyDict_DelItem(v.entries.get(), key) < 0) PyErr_Clear();
    v.shared ? virtuals_.noteChange() : virtuals_.noteChange(v);
    return breaks_.isLive();
  }
  const Shadow item = reads_.dictEntry(shadow, dict, key, value);
  Shadow known = shadow;
  const Shadow target = Shadow::source(guards_.sourceOf(known, dict));
  return emitDelete(target, deletion, item, value) && noteDelete(dict, key);
}

bool Heap::deleteItem(Shadow shadow, PyObject* dict, PyObject* key, bool raisesKeyError) {
  return deleteEntry({shadow, dict, key, raisesKeyError, false});
}

bool Heap::takeItem(Shadow shadow, PyObject* dict, PyObject* key, bool raisesKeyError) {
  return deleteEntry({shadow, dict, key, raisesKeyError, true});
}

bool Heap::takeElement(Shadow list, PyObject* object, PyObject* index, Shadow item, PyObject* real) {
  if (!list.isVirtual()) {
    list = Shadow::source(guards_.sourceOf(list, object));
    guards_.guardType(list, object);
  }
  return emitEffect(Op::kTakeItem, {{list, object}, {Shadow::constant(), index}, {item, real}});
}

// Emits `object.method(args...)` as an effect; the result is not used.
bool Heap::emitMethod(const char* method, Shadow shadow, PyObject* object,
                      const std::vector<std::pair<Shadow, PyObject*>>& args) {
  PyObject* descriptor = specialMethod(Py_TYPE(object), method);
  if (descriptor == nullptr) {
    breaks_.abort(diag::Code::KTG0303, {method});
    return false;
  }
  if (shadow.isSource() || shadow.isConst()) {
    ir::SourceId source = guards_.sourceOf(shadow, object);
    shadow = Shadow::source(source);
    guards_.guardType(shadow, object);
  }
  std::vector<Operand> operands = {Operand::constant(guards_.constId(descriptor))};
  Operand self;
  if (!snapshots_.operandOf(shadow, object, self)) return false;
  operands.push_back(self);
  for (auto [arg, real] : args) {
    arg = guards_.valueOfTensor(arg, real);
    Operand operand;
    if (!breaks_.isLive() || !snapshots_.escape(arg, real)) return false;
    if (!snapshots_.operandOf(arg, real, operand)) {
      breaks_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(real)});
      return false;
    }
    operands.push_back(operand);
  }
  size_t at =
      writer_.emit(Op::kCallKnown, operands, {{ir::TypeKind::kObject, ir::kNone}}, snapshots_.stateBefore());
  // list.append only stores its argument and calls no other code.
  trace_.code[at].deferrable = PyList_CheckExact(object) && std::string_view(method) == "append";
  return breaks_.isLive();
}

// Notes an entry in the overlay of an older dict. The effect has been emitted already.
bool Heap::noteWrite(PyObject* dict, PyObject* key, Shadow value, PyObject* real) {
  reads_.makeOverlay(dict).written(dict, key, value, real);
  return breaks_.isLive();
}

bool Heap::noteDelete(PyObject* dict, PyObject* key) {
  Overlay& overlay = reads_.makeOverlay(dict);
  overlay.noteDeleted(key);
  --overlay.grown;
  return breaks_.isLive();
}

}  // namespace kintsugi::capture
