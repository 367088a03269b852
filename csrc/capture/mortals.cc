#include "capture/mortals.h"

#include <algorithm>
#include <utility>

#include "capture/calls/model.h"
#include "capture/class_attributes.h"
#include "capture/exceptions.h"
#include "capture/paused.h"
#include "guard/source_roots.h"
#include "ir/liveness.h"
#include "opcode.h"
#include "pyapi/generator.h"
#include "pyapi/let_go.h"

namespace kintsugi::capture {

using guard::SourceKind;
using ir::Operand;

bool isMortal(PyObject* object) {
  return pythonMethod(object, "__del__") != nullptr && PyObject_IS_GC(object) &&
         Py_TYPE(object)->tp_weaklistoffset > 0 && !PyExceptionInstance_Check(object) &&
         !Finalized::holdsPython(object);
}

namespace {

// The slot itself, a variable in a cell, or a method of the object.
bool holds(PyObject* slot, PyObject* object) {
  if (slot == nullptr || slot == object) return slot == object;
  if (PyCell_Check(slot)) return PyCell_GET(slot) == object;
  return PyMethod_Check(slot) && PyMethod_GET_SELF(slot) == object;
}

bool anyHolds(PyObject** begin, PyObject** end, PyObject* object) {
  return std::any_of(begin, end, [object](PyObject* slot) { return holds(slot, object); });
}

bool frameHolds(const ShadowFrame& frame, PyObject* object) {
  if (frame.act == nullptr || frame.act->frame == nullptr) return false;
  PyObject** locals = pyapi::localsPlus(frame.act->frame);
  PyObject** stack = pyapi::stackBase(frame.act->frame);
  PyObject** top = frame.act->sp != nullptr ? frame.act->sp : stack + frame.stack.size();
  return anyHolds(locals, top, object);
}

// A generator of the trace that waits, whose frame nobody else can reach.
bool waits(const Virtual& v) {
  return v.kind == VirtualKind::kGenerator && v.frame != nullptr && v.object && v.value == ir::kNone;
}

bool generatorHolds(const Virtual& v, PyObject* object) {
  auto* raw = reinterpret_cast<_PyInterpreterFrame*>(reinterpret_cast<PyGenObject*>(v.object.get())->gi_iframe);
  PyObject** locals = pyapi::localsPlus(raw);
  const size_t depth = v.frame->act != nullptr ? v.frame->stack.size() : 0;
  return anyHolds(locals, locals + v.frame->locals.size(), object) ||
         anyHolds(pyapi::stackBase(raw), pyapi::stackBase(raw) + depth, object);
}

// Does a frame of the program's hold it, or a generator that holds no other?
bool isHeld(const RecorderState& state, PyObject* object) {
  for (const auto& frame : state.frames_) {
    if (frameHolds(*frame, object)) return true;
  }
  return std::ranges::any_of(state.virtuals_, [&](const auto& v) {
    if (!waits(*v) || !generatorHolds(*v, object)) return false;
    return std::ranges::none_of(state.mortals_, [&](const Mortal& other) {
      return other.object != object && generatorHolds(*v, other.object);
    });
  });
}

Py_ssize_t ownReferences(const RecorderState& state, PyObject* object) {
  return std::ranges::count_if(state.kept_, [object](const auto& kept) { return kept.get() == object; }) +
         static_cast<Py_ssize_t>(state.overlays_.contains(object));
}

// The references that the recorder has; the last of them may be the last of all.
std::vector<pyapi::Ref<>> takeReferences(RecorderState& state, PyObject* object) {
  std::vector<pyapi::Ref<>> taken;
  for (pyapi::Ref<>& kept : state.kept_) {
    if (kept.get() == object) taken.push_back(std::move(kept));
  }
  std::erase_if(state.kept_, [](const pyapi::Ref<>& kept) { return !kept; });
  if (auto found = state.overlays_.find(object); found != state.overlays_.end()) {
    taken.push_back(std::move(found->second.object));
    state.overlays_.erase(found);
  }
  return taken;
}

// Its address may be another object's from now on.
void forgetIdentity(RecorderState& state, PyObject* object) {
  state.sourceIds_.erase(object);
  std::ranges::replace(state.sourceObjects_, object, nullptr);
}

bool startsAt(const RecorderState& state, ir::SourceId source, ir::ValueId value) {
  const auto& nodes = state.document_.sources.nodes;
  while (nodes[source].parent != ir::kNone) source = nodes[source].parent;
  return nodes[source].kind == SourceKind::kValue && nodes[source].index == static_cast<int64_t>(value);
}

// What was read from an object that has gone, and has nobody else to hold it.
void dropParts(RecorderState& state, const Mortal& gone) {
  for (ir::SourceId id = 0; id < state.sourceObjects_.size(); ++id) {
    PyObject* part = state.sourceObjects_[id];
    if (part == nullptr || Recorder::isPlain(part) || torchapi::isTensor(part)) continue;
    if (!startsAt(state, id, gone.value) || Py_REFCNT(part) != ownReferences(state, part)) continue;
    forgetIdentity(state, part);
    takeReferences(state, part);
  }
}

}  // namespace

// What a step gave.
void Recorder::follow(PyObject* object, Shadow shadow) {
  const auto isIt = [object](const Mortal& m) { return m.object == object; };
  if (!live_ || !shadow.isSource() || std::ranges::any_of(mortals_, isIt) || !isMortal(object)) return;
  const guard::SourceNode& node = document_.sources.nodes[shadow.id];
  if (node.kind != SourceKind::kValue) return;
  Mortal made{object, pyapi::steal(PyWeakref_NewRef(object, nullptr)), shadow.id,
              static_cast<ir::ValueId>(node.index)};
  PyErr_Clear();
  if (made.weak) mortals_.push_back(std::move(made));
}

// Before an instruction: those that have ended.
void Recorder::dropDead() {
  const bool newestFirst = std::exchange(newestFirst_, false);
  const auto isDead = [this](const Mortal& m) { return Py_REFCNT(m.object) == ownReferences(*this, m.object); };
  while (live_ && !mortals_.empty()) {
    const auto pinned = [this](const Mortal& m) { return constIds_.contains(m.object); };
    if (const auto found = std::ranges::find_if(mortals_, pinned); found != mortals_.end())
      return abort(diag::Code::KTG0302, {Py_TYPE(found->object)->tp_name});
    Droppable::sweepInstances(*this);
    if (newestFirst) std::ranges::reverse(mortals_);
    const auto dead = std::ranges::find_if(mortals_, isDead);
    const bool none = dead == mortals_.end();
    Mortal gone;
    if (!none) {
      gone = std::move(*dead);
      mortals_.erase(dead);
    }
    if (newestFirst) std::ranges::reverse(mortals_);
    if (none) break;
    dropOne(std::move(gone));
  }
  const auto held = [this](const Mortal& m) { return isHeld(*this, m.object); };
  if (live_ && mortals_.size() > 1 && !std::ranges::all_of(mortals_, held))
    abort(diag::Code::KTG0302, {Py_TYPE(mortals_.front().object)->tp_name});
}

void Recorder::dropOne(Mortal mortal) {
  PyObject* object = mortal.object;
  const std::string name = std::string(Py_TYPE(object)->tp_name) + ".__del__";
  mortals_.insert(mortals_.begin(), std::move(mortal));  // while the recording may end
  if (!escapeHandled(*this)) return;
  const ir::StateId snap = stateBefore();
  const ir::ConstId letGo = constId(pyapi::letGoFunction());
  if (!live_) return;
  if (!isStrict()) noteBreak(diag::Code::KTG0101, {name});
  mortal = std::move(mortals_.front());
  mortals_.erase(mortals_.begin());
  const bool others = !mortals_.empty() && releaseMortals();
  expectWrites(*this);
  std::vector<pyapi::Ref<>> last = takeReferences(*this, object);
  forgetIdentity(*this, object);
  bool revived = false;
  {
    Paused paused(*this);
    PyObject_CallFinalizer(object);
    revived = Py_REFCNT(object) > static_cast<Py_ssize_t>(last.size());
    last.clear();
    overlays_.clear();  // those of its dict hold it
    dropParts(*this, mortal);
  }
  if (others) takeMortalsBack();
  if (revived) abort(diag::Code::KTG0302, {name});
  if (!live_) return;
  const Operand operands[] = {Operand::constant(letGo), Operand::value(mortal.value)};
  const ir::Type result[] = {{ir::TypeKind::kObject, ir::kNone}};
  document_.trace.append(ir::Op::kCall, operands, result, snap);
  ++block_;
  stale();
  forgetHandedOut();
  if (!classVersions_.guards.empty()) renewVersions(*this);
  cachedState_ = ir::kNone;
  if (live_) flushBlock();
}

// A function returns: its variables go in their order, before anything else does.
void Recorder::clearLocals(ShadowFrame& frame, Activation& act) {
  constexpr int kFunction = CO_OPTIMIZED | CO_NEWLOCALS;
  PyFrameObject* seen = act.frame->frame_obj;
  if ((frame.code->co_flags & kFunction) != kFunction || (seen != nullptr && Py_REFCNT(seen) > 1)) return;
  PyObject** locals = pyapi::localsPlus(act.frame);
  const auto isWatched = [](PyObject* local) {
    if (local == nullptr || !PyGen_CheckExact(local)) return false;
    auto* generator = reinterpret_cast<PyGenObject*>(local);
    return generator->gi_frame_state == FRAME_SUSPENDED && !pyapi::closesQuietly(generator);
  };
  if (std::any_of(locals, locals + frame.locals.size(), isWatched))
    return abort(diag::Code::KTG0302, {"generator"});
  for (size_t i = 0; live_ && !mortals_.empty() && i < frame.locals.size(); ++i) {
    pyapi::Ref<> gone = pyapi::steal(std::exchange(locals[i], nullptr));
    if (!gone) continue;
    frame.locals[i] = Shadow::null();
    cachedState_ = ir::kNone;
    gone.reset();
    dropDead();
  }
}

// A function that is called from Python code takes its arguments over from the caller's stack.
void Recorder::handOver(ShadowFrame& caller, PyCodeObject* callee) {
  if (instr_ == nullptr || instr_->op != CALL || caller.act == nullptr || executed_ == false) return;
  Activation& act = *caller.act;
  const int count = static_cast<int>(instr_->arg);
  const bool method = act.peek(count + 2) != nullptr;
  PyObject* function = act.peek(method ? count + 2 : count + 1);
  if (!PyFunction_Check(function) || PyFunction_GET_CODE(function) != reinterpret_cast<PyObject*>(callee))
    return;
  for (int i = method ? count + 1 : count; i >= 1; --i) {
    PyObject* object = act.peek(i);
    const auto isIt = [object](const Mortal& m) { return m.object == object; };
    if (object == nullptr || std::ranges::none_of(mortals_, isIt)) continue;
    caller.top(i) = Shadow::null();
    Py_DECREF(std::exchange(act.peek(i), nullptr));  // the callee's variable holds it
  }
}

// A step that is not looked into may let go of them. False: the recording has ended, since a replay would
// hold one longer than the program does.
bool Recorder::releaseMortals() {
  const auto ended = [this](const Mortal& m) { return Py_REFCNT(m.object) == ownReferences(*this, m.object); };
  for (const Mortal& m : mortals_) {
    if (ended(m) || (isHeld(*this, m.object) && !constIds_.contains(m.object))) continue;
    abort(diag::Code::KTG0302, {Py_TYPE(m.object)->tp_name});
    letGo();
    return false;
  }
  for (const Mortal& m : mortals_) {
    if (!ended(m)) takeReferences(*this, m.object);  // the others' turn comes
  }
  return true;
}

void Recorder::takeMortalsBack() {
  for (const Mortal& m : mortals_) {
    if (PyObject* object = PyWeakref_GET_OBJECT(m.weak.get()); object != Py_None) {
      if (ownReferences(*this, object) == 0) kept_.push_back(pyapi::newRef(object));
      continue;
    }
    forgetIdentity(*this, m.object);
    abort(diag::Code::KTG0302, {"object that a step has let go of"});
  }
  std::erase_if(mortals_, [](const Mortal& m) { return PyWeakref_GET_OBJECT(m.weak.get()) == Py_None; });
}

// The recording has ended: they are the program's alone.
void Recorder::endMortals() {
  for (const Mortal& m : std::exchange(mortals_, {})) {
    if (const auto found = constIds_.find(m.object); found != constIds_.end())
      consts_[found->second] = pyapi::newRef(Py_None);
    forgetIdentity(*this, m.object);
    takeReferences(*this, m.object);
    overlays_.clear();  // those of its dict hold what it holds
  }
}

// The call is over. What has not ended is part of the result; what was dropped is needed by nothing behind.
void Recorder::checkMortals() {
  const ir::Trace& trace = document_.trace;
  const ir::SourceRoots roots = guard::sourceRoots(document_.sources);
  std::vector<ir::ValueId> returned;
  std::vector<Operand> open(trace.operandsOf(trace.code.back()).begin(),
                            trace.operandsOf(trace.code.back()).end());
  std::unordered_set<ir::RecipeId> seen;
  while (!open.empty()) {
    const Operand operand = open.back();
    open.pop_back();
    if (operand.kind == ir::OperandKind::kSource && roots.value[operand.id] != ir::kNone)
      returned.push_back(roots.value[operand.id]);
    if (operand.kind != ir::OperandKind::kRecipe || !seen.insert(operand.id).second) continue;
    open.insert(open.end(), trace.recipes[operand.id].parts.begin(), trace.recipes[operand.id].parts.end());
  }
  for (const Mortal& m : mortals_) {
    if (std::ranges::find(returned, m.value) == returned.end())
      return abort(diag::Code::KTG0302, {Py_TYPE(m.object)->tp_name});
  }
  const auto letGo = constIds_.find(pyapi::letGoFunction());
  if (letGo == constIds_.end()) return;
  const auto isDrop = [&](const ir::Instruction& ins) {
    if (ins.op != ir::Op::kCall) return false;
    const Operand& callee = trace.operandsOf(ins)[0];
    return callee.kind == ir::OperandKind::kConst && callee.id == letGo->second;
  };
  const ir::Liveness liveness = ir::computeLiveness(trace, roots);
  std::unordered_map<ir::ValueId, std::pair<uint32_t, guard::BlockId>> dropped;  // where, before which block
  guard::BlockId block = 0;
  for (uint32_t i = 0; i < trace.code.size(); ++i) {
    const ir::Instruction& ins = trace.code[i];
    if (ins.op == ir::Op::kGuardBlock) block = static_cast<guard::BlockId>(trace.operandsOf(ins)[0].i);
    if (isDrop(ins)) dropped[trace.operandsOf(ins)[1].id] = {i, block};
  }
  bool late = std::ranges::any_of(dropped, [&](const auto& drop) {
    return liveness.lastUse[drop.first] != drop.second.first;
  });
  for (const guard::Guard& g : document_.guards.guards) {
    for (const ir::SourceId source : {g.source, g.other}) {
      if (source == ir::kNone || roots.value[source] == ir::kNone) continue;
      const auto found = dropped.find(roots.value[source]);
      late = late || (found != dropped.end() && g.block > found->second.second);
    }
    // The same object under another name: it must be let go of as early.
    if (g.kind != guard::GuardKind::kSame) continue;
    const auto found = dropped.find(roots.value[g.other]);
    const ir::ValueId alias = roots.value[g.source];
    late = late || (found != dropped.end() && alias != ir::kNone && alias != found->first &&
                    liveness.lastUse[alias] >= found->second.first);
  }
  if (late) abort(diag::Code::KTG0302, {"object that is used behind its end"});
}

}  // namespace kintsugi::capture
