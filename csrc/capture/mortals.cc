#include "capture/mortals.h"

#include <algorithm>
#include <utility>

#include "capture/callee.h"
#include "capture/calls/model.h"
#include "capture/class_attributes.h"
#include "capture/exceptions.h"
#include "capture/paused.h"
#include "guard/source_roots.h"
#include "ir/liveness.h"
#include "ir/reach.h"
#include "pyapi/code.h"
#include "pyapi/drop_reference.h"
#include "pyapi/generator.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::SourceKind;
using ir::Operand;

bool isMortal(PyObject* object) {
  return pythonMethod(object, "__del__") != nullptr && PyObject_IS_GC(object) &&
         pyapi::isWeaklyReferenceable(object) && !PyExceptionInstance_Check(object) &&
         !Finalized::holdsPython(object);
}

namespace {

// The slot itself, a variable in a cell, or a method of the object.
bool holds(PyObject* slot, PyObject* object) {
  if (slot == nullptr || slot == object) return slot == object;
  if (PyCell_Check(slot)) return PyCell_GET(slot) == object;
  return PyMethod_Check(slot) && PyMethod_GET_SELF(slot) == object;
}

bool localsHold(const pyapi::Frame* frame, size_t count, PyObject* object) {
  for (size_t i = 0; i < count; ++i) {
    if (holds(pyapi::localAt(frame, static_cast<int>(i)), object)) return true;
  }
  return false;
}

bool frameHolds(const ShadowFrame& frame, PyObject* object) {
  if (frame.act == nullptr || frame.act->frame == nullptr) return false;
  PyObject** stack = pyapi::stackBase(frame.act->frame);
  PyObject** top = frame.act->sp != nullptr ? frame.act->sp : stack + frame.stack.size();
  return localsHold(frame.act->frame, frame.locals.size(), object) ||
         std::any_of(stack, top, [object](PyObject* slot) { return holds(slot, object); });
}

// A generator of the trace that waits, whose frame nobody else can reach.
bool waits(const Virtual& v) {
  return v.kind == VirtualKind::kGenerator && v.frame != nullptr && v.object && v.value == ir::kNone;
}

bool generatorHolds(const Virtual& v, PyObject* object) {
  auto* raw = pyapi::frameOf(pyapi::asGenerator(v.object.get()));
  const int depth = v.frame->act != nullptr ? static_cast<int>(v.frame->stack.size()) : 0;
  for (int i = 0; i < depth; ++i) {
    if (holds(pyapi::stackAt(raw, i), object)) return true;
  }
  return localsHold(raw, v.frame->locals.size(), object);
}

// A generator that the program has dropped, and nothing of which runs when it is closed, lets go of what its
// frame holds.
void closeDroppedGenerators(Recorder& rec) {
  RecorderState& state = rec.known();
  for (size_t i = state.virtuals_.size(); i-- > 0;) {
    Virtual& v = *state.virtuals_[i];
    if (!waits(v) || Py_REFCNT(v.object.get()) > 1 ||
        !pyapi::closesQuietly(pyapi::asGenerator(v.object.get())))
      continue;
    const bool holdsOne =
        std::ranges::any_of(state.mortals_, [&v](const Mortal& m) { return generatorHolds(v, m.object); });
    if (!holdsOne) continue;
    Paused paused(rec);
    state.virtualIds_.erase(v.object.get());
    v.kind = VirtualKind::kOpaque;  // nothing names it
    v.frame.reset();
    v.object.reset();
  }
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
  return static_cast<Py_ssize_t>(state.kept_.contains(object)) +
         static_cast<Py_ssize_t>(state.overlays_.contains(object));
}

// The references that the recorder has; the last of them may be the last of all.
std::vector<pyapi::Ref<>> takeReferences(RecorderState& state, PyObject* object) {
  std::vector<pyapi::Ref<>> taken;
  if (pyapi::Ref<> kept = state.kept_.take(object)) taken.push_back(std::move(kept));
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
void Mortals::follow(Recorder& rec, PyObject* object, Shadow shadow) {
  const auto isIt = [object](const Mortal& m) { return m.object == object; };
  if (!rec.live_ || !shadow.isSource() || std::ranges::any_of(rec.mortals_, isIt) || !isMortal(object))
    return;
  const guard::SourceNode& node = rec.document_.sources.nodes[shadow.sourceId()];
  if (node.kind != SourceKind::kValue) return;
  Mortal made{object, pyapi::steal(PyWeakref_NewRef(object, nullptr)), shadow.sourceId(),
              static_cast<ir::ValueId>(node.index)};
  PyErr_Clear();
  if (made.weak) rec.mortals_.push_back(std::move(made));
}

// Before an instruction: those that have ended.
void Mortals::settle(Recorder& rec) {
  const bool newestFirst = std::exchange(rec.newestFirst_, false);
  const auto isDead = [&rec](const Mortal& m) { return Py_REFCNT(m.object) == ownReferences(rec, m.object); };
  while (rec.live_ && !rec.mortals_.empty()) {
    const auto pinned = [&rec](const Mortal& m) { return rec.constIds_.contains(m.object); };
    if (const auto found = std::ranges::find_if(rec.mortals_, pinned); found != rec.mortals_.end())
      return rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(found->object)});
    rec.droppable_.sweepInstances(rec);
    closeDroppedGenerators(rec);
    if (newestFirst) std::ranges::reverse(rec.mortals_);
    const auto dead = std::ranges::find_if(rec.mortals_, isDead);
    const bool none = dead == rec.mortals_.end();
    Mortal gone;
    if (!none) {
      gone = std::move(*dead);
      rec.mortals_.erase(dead);
    }
    if (newestFirst) std::ranges::reverse(rec.mortals_);
    if (none) break;
    drop(rec, std::move(gone));
  }
  const auto held = [&rec](const Mortal& m) { return isHeld(rec, m.object); };
  if (rec.live_ && !std::ranges::all_of(rec.mortals_, held))  // but by what the recorder may hold, too
    rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(rec.mortals_.front().object)});
}

void Mortals::endFirst(Recorder& rec) {
  if (!rec.live_) return;
  if (!rec.mortals_.empty()) {
    rec.droppable_.sweepInstances(rec);
    closeDroppedGenerators(rec);
  }
  const auto ended = [&rec](const Mortal& m) { return Py_REFCNT(m.object) == ownReferences(rec, m.object); };
  const auto first =
      std::ranges::stable_partition(rec.mortals_, ended);  // settle() takes the first ones first
  const bool any = first.begin() != rec.mortals_.begin();
  if (any && !(rec.watched_.empty() && rec.finalized_.empty())) {  // of these, settle() knows nothing
    rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(rec.mortals_.front().object)});
    rec.letGo();
    return;
  }
  if (!rec.watched_.empty()) rec.closeDropped();
  if (!rec.finalized_.empty() && rec.live_) rec.finalized_.freeDropped(rec);
}

void Mortals::drop(Recorder& rec, Mortal mortal) {
  PyObject* object = mortal.object;
  const std::string name = std::string(pyapi::typeNameOf(object)) + ".__del__";
  rec.mortals_.insert(rec.mortals_.begin(), std::move(mortal));  // while the recording may end
  if (!escapeHandled(rec)) return;
  const ir::StateId snap = rec.stateBefore();
  const ir::ConstId letGo = rec.constId(pyapi::dropReferenceFunction());
  if (!rec.live_) return;
  if (!rec.isStrict()) rec.noteBreak(diag::Code::KTG0101, {name});
  if (!release(rec)) return;
  mortal = std::move(rec.mortals_.front());
  rec.mortals_.erase(rec.mortals_.begin());
  expectWrites(rec);
  std::vector<pyapi::Ref<>> last = takeReferences(rec, object);
  forgetIdentity(rec, object);
  bool revived = false;
  {
    Paused paused(rec);
    PyObject_CallFinalizer(object);
    revived = Py_REFCNT(object) > static_cast<Py_ssize_t>(last.size());
    last.clear();
    rec.overlays_.clear();  // those of its dict hold it
    dropParts(rec, mortal);
  }
  takeBack(rec);
  if (revived) rec.abort(diag::Code::KTG0302, {name});
  if (!rec.live_) return;
  const Operand operands[] = {Operand::constant(letGo), Operand::value(mortal.value)};
  const ir::Type result[] = {{ir::TypeKind::kObject, ir::kNone}};
  rec.document_.trace.append(ir::Op::kCall, operands, result, snap);
  ++rec.block_;
  rec.stale();
  CallContext nothing(rec, *rec.current_, *rec.current_->act, *rec.instr_);
  rec.forgetEscaped(nothing);
  if (!rec.classVersions_.guards.empty()) renewVersions(rec);
  rec.cachedState_ = ir::kNone;
  if (rec.live_) rec.flushBlock();
}

// A function returns: its variables go in their order, before anything else does.
void Mortals::clearLocals(Recorder& rec, ShadowFrame& frame, Activation& act) {
  constexpr int kFunction = CO_OPTIMIZED | CO_NEWLOCALS;
  if ((pyapi::flagsOf(frame.code) & kFunction) != kFunction || pyapi::isSeen(act.frame)) return;
  const auto isWatched = [&act](size_t index) {
    PyObject* local = pyapi::localAt(act.frame, static_cast<int>(index));
    if (local == nullptr || !PyGen_CheckExact(local)) return false;
    auto* generator = pyapi::asGenerator(local);
    return pyapi::stateOf(generator) == pyapi::GeneratorState::kSuspended && !pyapi::closesQuietly(generator);
  };
  for (size_t i = 0; i < frame.locals.size(); ++i) {
    if (isWatched(i)) return rec.abort(diag::Code::KTG0302, {"generator"});
  }
  for (size_t i = 0; rec.live_ && !rec.mortals_.empty() && i < frame.locals.size(); ++i) {
    pyapi::Ref<> gone = pyapi::steal(pyapi::exchangeLocal(act.frame, static_cast<int>(i), nullptr));
    if (!gone) continue;
    frame.locals[i] = Shadow::null();
    rec.cachedState_ = ir::kNone;
    gone.reset();
    settle(rec);
  }
}

// A function that is called from Python code takes its arguments over from the caller's stack.
void Mortals::handOver(Recorder& rec, ShadowFrame& caller, PyCodeObject* callee) {
  if (rec.instr_ == nullptr || caller.act == nullptr || rec.executed_ == false) return;
  const bool keywords = rec.instr_->op == op::CALL_KW;
  if (rec.instr_->op != op::CALL && !keywords) return;
  Activation& act = *caller.act;
  const int above = keywords ? 1 : 0;  // the names of the keywords
  const int lower = static_cast<int>(rec.instr_->arg) + above + 2;
  PyObject* function = act.peek(calleeDepth(act, lower));
  if (!PyFunction_Check(function) || PyFunction_GET_CODE(function) != reinterpret_cast<PyObject*>(callee))
    return;
  for (int i = callsMethod(act, lower) ? lower - 1 : lower - 2; i > above; --i) {
    PyObject* object = act.peek(i);
    const auto isIt = [object](const Mortal& m) { return m.object == object; };
    if (object == nullptr || std::ranges::none_of(rec.mortals_, isIt)) continue;
    caller.top(i) = Shadow::null();
    Py_DECREF(std::exchange(act.peek(i), nullptr));  // the callee's variable holds it
  }
}

// A step that is not looked into may let go of them. False: the recording has ended, since a replay would
// hold one longer than the program does.
bool Mortals::release(Recorder& rec) {
  const auto ended = [&rec](const Mortal& m) { return Py_REFCNT(m.object) == ownReferences(rec, m.object); };
  for (const Mortal& m : rec.mortals_) {
    if (ended(m) || (isHeld(rec, m.object) && !rec.constIds_.contains(m.object))) continue;
    rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(m.object)});
    rec.letGo();
    return false;
  }
  for (const Mortal& m : rec.mortals_) {
    if (!ended(m)) takeReferences(rec, m.object);  // the others' turn comes
  }
  return true;
}

void Mortals::takeBack(Recorder& rec) {
  for (const Mortal& m : rec.mortals_) {
    if (PyObject* object = PyWeakref_GET_OBJECT(m.weak.get()); object != Py_None) {
      if (ownReferences(rec, object) == 0) rec.kept_.add(object);
      continue;
    }
    forgetIdentity(rec, m.object);
    rec.abort(diag::Code::KTG0302, {"object that a step has let go of"});
  }
  std::erase_if(rec.mortals_, [](const Mortal& m) { return PyWeakref_GET_OBJECT(m.weak.get()) == Py_None; });
}

// The recording has ended: they are the program's alone.
void Mortals::end(Recorder& rec) {
  for (const Mortal& m : std::exchange(rec.mortals_, {})) {
    if (const auto found = rec.constIds_.find(m.object); found != rec.constIds_.end())
      rec.consts_[found->second] = pyapi::newRef(Py_None);
    forgetIdentity(rec, m.object);
    takeReferences(rec, m.object);
    rec.overlays_.clear();  // those of its dict hold what it holds
  }
}

// Behind the steps that let go of objects: neither the objects themselves, nor guards that start at them.
bool Mortals::usesEndThere(const Recorder& rec) {
  const ir::Trace& trace = rec.document_.trace;
  const auto letGo = rec.constIds_.find(pyapi::dropReferenceFunction());
  if (letGo == rec.constIds_.end()) return true;
  const auto isDrop = [&](const ir::Instruction& ins) {
    if (ins.op != ir::Op::kCall) return false;
    const Operand& callee = trace.operandsOf(ins)[0];
    return callee.kind == ir::OperandKind::kConst && callee.id == letGo->second;
  };
  std::unordered_map<ir::ValueId, std::pair<uint32_t, guard::BlockId>> dropped;  // where, before which block
  guard::BlockId block = 0;
  for (uint32_t i = 0; i < trace.code.size(); ++i) {
    const ir::Instruction& ins = trace.code[i];
    if (ins.op == ir::Op::kGuardBlock) block = static_cast<guard::BlockId>(trace.operandsOf(ins)[0].i);
    if (isDrop(ins)) dropped[trace.operandsOf(ins)[1].id] = {i, block};
  }
  const auto& nodes = rec.document_.sources.nodes;
  const ir::SourceRoots roots = guard::sourceRoots(rec.document_.sources);
  bool late = false;
  std::unordered_set<ir::ValueId> used;
  ir::ReachWalker walker(trace);
  for (size_t i = trace.code.size(); i-- > 0;) {
    if (isDrop(trace.code[i])) late = late || used.contains(trace.operandsOf(trace.code[i])[1].id);
    walker.instruction(
        trace.code[i], [&](ir::ValueId value) { used.insert(value); },
        [&](ir::SourceId source) {
          if (nodes[source].kind == SourceKind::kValue)
            used.insert(static_cast<ir::ValueId>(nodes[source].index));
        });
  }
  const auto isLate = [&](ir::ValueId root, guard::BlockId at) {
    const auto found = root != ir::kNone ? dropped.find(root) : dropped.end();
    return found != dropped.end() && at > found->second.second;
  };
  for (const guard::SourceNode& node : nodes) {
    if (node.parent != ir::kNone && nodes[node.parent].kind == SourceKind::kValue)
      late = late || isLate(static_cast<ir::ValueId>(nodes[node.parent].index), node.block);
  }
  const ir::Liveness liveness = ir::computeLiveness(trace, roots);
  for (const guard::Guard& g : rec.document_.guards.guards) {
    if (g.source != ir::kNone) late = late || isLate(roots.value[g.source], g.block);
    if (g.other != ir::kNone) late = late || isLate(roots.value[g.other], g.block);
    // The same object under another name: it must be let go of as early.
    if (g.kind != guard::GuardKind::kSame || roots.value[g.other] == ir::kNone) continue;
    const auto found = dropped.find(roots.value[g.other]);
    const ir::ValueId alias = roots.value[g.source];
    late =
        late || (found != dropped.end() && nodes[g.other].kind == SourceKind::kValue && alias != ir::kNone &&
                 alias != found->first && liveness.lastUse[alias] >= found->second.first);
  }
  return !late;
}

// The call is over. What has not ended is part of the result; what was dropped is needed by nothing behind.
void Mortals::check(Recorder& rec) {
  const ir::Trace& trace = rec.document_.trace;
  const auto& nodes = rec.document_.sources.nodes;
  std::vector<ir::ValueId> returned;
  std::vector<Operand> open(trace.operandsOf(trace.code.back()).begin(),
                            trace.operandsOf(trace.code.back()).end());
  std::unordered_set<ir::RecipeId> seen;
  while (!open.empty()) {
    const Operand operand = open.back();
    open.pop_back();
    if (operand.kind == ir::OperandKind::kSource && nodes[operand.id].kind == SourceKind::kValue)
      returned.push_back(static_cast<ir::ValueId>(nodes[operand.id].index));
    if (operand.kind != ir::OperandKind::kRecipe || !seen.insert(operand.id).second) continue;
    open.insert(open.end(), trace.recipes[operand.id].parts.begin(), trace.recipes[operand.id].parts.end());
  }
  for (const Mortal& m : rec.mortals_) {
    if (std::ranges::find(returned, m.value) == returned.end())
      return rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(m.object)});
  }
  if (!usesEndThere(rec)) rec.abort(diag::Code::KTG0302, {"object that is used behind its end"});
}

}  // namespace kintsugi::capture
