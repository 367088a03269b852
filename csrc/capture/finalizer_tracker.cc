#include "capture/finalizer_tracker.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "capture/callee.h"
#include "capture/finalized_objects.h"
#include "capture/plain_objects.h"
#include "capture/special_methods.h"
#include "pyapi/code.h"
#include "pyapi/generator.h"
#include "pyapi/opcodes.h"
#include "pyapi/order.h"
#include "pyapi/types.h"
#include "pyapi/waiting_stack.h"
#include "support/check.h"
#include "torchapi/op_recorder.h"

namespace kintsugi::capture {

using guard::SourceKind;

bool hasTrackedFinalizer(PyObject* object) {
  return pythonMethod(object, "__del__") != nullptr && PyObject_IS_GC(object) &&
         pyapi::isWeaklyReferenceable(object) && !PyExceptionInstance_Check(object) &&
         !FinalizedObjects::holdsPython(object);
}

namespace {

// True if the slot holds the object directly, in a cell, or as the `self` of a bound method.
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
  if (localsHold(frame.act->frame, frame.locals.size(), object)) return true;
  const bool waits = frame.act->sp == nullptr;
  PyObject** stack = pyapi::stackBase(frame.act->frame);
  const size_t depth = waits ? frame.stack.size() : static_cast<size_t>(frame.act->sp - stack);
  for (size_t i = 0; i < depth; ++i) {
    PyObject* slot = waits ? pyapi::waitingStackAt(frame.act->frame, static_cast<int>(i)) : stack[i];
    if (holds(slot, object)) return true;
  }
  return false;
}

// A suspended generator of the trace whose frame nobody outside the trace can reach.
bool isSuspended(const Virtual& v) {
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

}  // namespace

std::string FinalizerTracker::firstName() const { return pyapi::typeNameOf(tracked_.front().object); }

bool FinalizerTracker::isTracked(PyObject* object) const {
  return std::ranges::any_of(tracked_, [object](const Tracked& t) { return t.object == object; });
}

// True if only the recorder holds the object.
bool FinalizerTracker::hasEnded(const Tracked& tracked) const {
  return Py_REFCNT(tracked.object) == ownReferences(tracked.object);
}

// Drops generators that the program has dropped and that run no code when they are closed, so that their
// frames no longer hold tracked objects. As long as a frame of the program's, or a generator that it has not
// dropped, holds each of these as well, nothing has ended. This is asked before each instruction, so it
// mostly has to do without a walk along all objects.
void FinalizerTracker::closeDroppedGenerators() {
  const std::vector<Virtual*>& all = tables_.virtuals.held();
  const auto lives = [&](const Tracked& t) {
    const auto frame = [&](const auto& f) { return frameHolds(*f, t.object); };
    const auto generator = [&](const Virtual* v) {
      return isSuspended(*v) && Py_REFCNT(v->object.get()) > 1 && generatorHolds(*v, t.object);
    };
    return std::ranges::any_of(tables_.frames.all(), frame) || std::ranges::any_of(all, generator);
  };
  if (std::ranges::all_of(tracked_, lives)) return;
  for (size_t i = all.size(); i-- > 0;) {
    Virtual& v = *all[i];
    if (!isSuspended(v) || Py_REFCNT(v.object.get()) > 1 ||
        !pyapi::closesQuietly(pyapi::asGenerator(v.object.get())))
      continue;
    const bool holdsOne =
        std::ranges::any_of(tracked_, [&v](const Tracked& t) { return generatorHolds(v, t.object); });
    if (!holdsOne) continue;
    const Paused paused(tables_.pauses);
    v.frame.reset();
    tables_.virtuals.dropObject(v);
  }
}

// True if a frame of the program's holds the object, or a suspended generator that holds no other tracked
// one.
bool FinalizerTracker::isHeld(PyObject* object) const {
  for (const auto& frame : tables_.frames.all()) {
    if (frameHolds(*frame, object)) return true;
  }
  return std::ranges::any_of(tables_.virtuals.held(), [&](const Virtual* v) {
    if (!isSuspended(*v) || !generatorHolds(*v, object)) return false;
    return std::ranges::none_of(tracked_, [&](const Tracked& other) {
      return other.object != object && generatorHolds(*v, other.object);
    });
  });
}

Py_ssize_t FinalizerTracker::ownReferences(PyObject* object) const {
  return static_cast<Py_ssize_t>(tables_.kept.contains(object)) +
         static_cast<Py_ssize_t>(tables_.overlays.contains(object));
}

// Moves the recorder's own references out. Dropping the last of them may destroy the object.
Refs FinalizerTracker::takeReferences(PyObject* object) {
  Refs taken;
  if (pyapi::Ref<> kept = tables_.kept.take(object)) taken.push_back(std::move(kept));
  if (pyapi::Ref<> written = tables_.overlays.take(object)) taken.push_back(std::move(written));
  return taken;
}

bool FinalizerTracker::startsAt(ir::SourceId source, ir::ValueId value) const {
  while (tables_.sources.node(source).parent != ir::kNone) source = tables_.sources.node(source).parent;
  const guard::SourceNode& root = tables_.sources.node(source);
  return root.kind == SourceKind::kValue && root.index == static_cast<int64_t>(value);
}

// Drops the objects that were read from `gone` and that only the recorder holds now.
void FinalizerTracker::dropParts(const Tracked& gone) {
  for (ir::SourceId id = 0; id < tables_.sources.size(); ++id) {
    PyObject* part = tables_.sources.objectOf(id);
    if (part == nullptr || isPlain(part) || torchapi::isTensor(part)) continue;
    if (!startsAt(id, gone.value) || Py_REFCNT(part) != ownReferences(part)) continue;
    tables_.sources.forget(part);
    takeReferences(part);
  }
}

void FinalizerTracker::track(PyObject* object, Shadow shadow) {
  if (!tables_.breaks.isLive() || !shadow.isSource() || isTracked(object) || !hasTrackedFinalizer(object))
    return;
  KINTSUGI_CHECK(shadow.sourceId() < tables_.sources.size(), "source $", shadow.sourceId());
  const guard::SourceNode& node = tables_.sources.node(shadow.sourceId());
  if (node.kind != SourceKind::kValue) return;
  Tracked made{object, pyapi::steal(PyWeakref_NewRef(object, nullptr)), static_cast<ir::ValueId>(node.index)};
  PyErr_Clear();
  if (made.weak) tracked_.push_back(std::move(made));
}

std::optional<FinalizerTracker::Tracked> FinalizerTracker::takeEnded(bool newestFirst) {
  const auto ended = [this](const Tracked& t) { return hasEnded(t); };
  auto found = std::ranges::find_if(tracked_, ended);
  if (newestFirst) {
    const auto last = std::find_if(tracked_.rbegin(), tracked_.rend(), ended);
    found = last == tracked_.rend() ? tracked_.end() : std::prev(last.base());
  }
  if (found == tracked_.end()) return std::nullopt;
  Tracked gone = std::move(*found);
  tracked_.erase(found);
  return gone;
}

void FinalizerTracker::runPending() {
  const bool newestFirst = std::exchange(newestFirst_, false) || pyapi::dropsLastFirst();
  while (tables_.breaks.isLive() && !tracked_.empty()) {
    const auto pinned = [this](const Tracked& t) { return tables_.constants.contains(t.object); };
    if (const auto found = std::ranges::find_if(tracked_, pinned); found != tracked_.end())
      return host_.endFor(pyapi::typeNameOf(found->object));
    tables_.dead.sweepAll();
    closeDroppedGenerators();
    std::optional<Tracked> gone = takeEnded(newestFirst);
    if (!gone) break;
    runFinalizer(std::move(*gone));
  }
  const auto held = [this](const Tracked& t) { return isHeld(t.object); };
  // What only containers or other objects hold may be dropped without notice, so the recording ends.
  if (tables_.breaks.isLive() && !std::ranges::all_of(tracked_, held)) host_.endFor(firstName());
}

// The front is where runPending() begins: at the end of the list where it takes the newest first.
bool FinalizerTracker::moveEndedToFront() {
  if (!tracked_.empty()) {
    tables_.dead.sweepAll();
    closeDroppedGenerators();
  }
  const auto ended = [this](const Tracked& t) { return hasEnded(t); };
  if (pyapi::dropsLastFirst()) return !std::ranges::stable_partition(tracked_, std::not_fn(ended)).empty();
  const auto others = std::ranges::stable_partition(tracked_, ended);
  return others.begin() != tracked_.begin();
}

void FinalizerTracker::runFinalizer(Tracked tracked) {
  PyObject* object = tracked.object;
  const std::string name = std::string(pyapi::typeNameOf(object)) + ".__del__";
  // Stays in the list while the calls below may end the recording.
  tracked_.insert(tracked_.begin(), std::move(tracked));
  const std::optional<ir::StateId> snap = host_.beginFinalizer(name);
  if (!snap || !release()) return;
  KINTSUGI_CHECK(!tracked_.empty() && tracked_.front().object == object,
                 "the finalizer of another object is run");
  tracked = std::move(tracked_.front());
  tracked_.erase(tracked_.begin());
  host_.expectWrites();
  Refs last = takeReferences(object);
  tables_.sources.forget(object);
  bool revived = false;
  {
    const Paused paused(tables_.pauses);
    PyObject_CallFinalizer(object);
    revived = Py_REFCNT(object) > static_cast<Py_ssize_t>(last.size());
    last.clear();
    tables_.overlays.clear();  // an overlay of the object's dict may hold the object
    dropParts(tracked);
  }
  reclaim();
  if (revived) host_.endFor(name);
  if (tables_.breaks.isLive()) host_.finishFinalizer(tracked.value, *snap);
}

// A function returns. Clears its variables in CPython's order, as it does before it drops anything else.
void FinalizerTracker::clearLocals(ShadowFrame& frame, Activation& act) {
  constexpr int kFunction = CO_OPTIMIZED | CO_NEWLOCALS;
  if ((pyapi::flagsOf(frame.code) & kFunction) != kFunction || pyapi::isSeen(act.frame)) return;
  const auto runsCode = [&act](size_t index) {  // it runs code when it is closed
    PyObject* local = pyapi::localAt(act.frame, static_cast<int>(index));
    if (local == nullptr || !PyGen_CheckExact(local)) return false;
    auto* generator = pyapi::asGenerator(local);
    return pyapi::stateOf(generator) == pyapi::GeneratorState::kSuspended && !pyapi::closesQuietly(generator);
  };
  for (size_t i = 0; i < frame.locals.size(); ++i) {
    if (runsCode(i)) return host_.endFor("generator");
  }
  const size_t count = frame.locals.size();
  for (size_t k = 0; tables_.breaks.isLive() && !tracked_.empty() && k < count; ++k) {
    const size_t i = pyapi::dropsLastFirst() ? count - 1 - k : k;
    pyapi::Ref<> gone = pyapi::steal(pyapi::exchangeLocal(act.frame, static_cast<int>(i), nullptr));
    if (!gone) continue;
    frame.locals[i] = Shadow::null();
    tables_.instruction.forgetState();
    gone.reset();
    runPending();
  }
}

// CPython moves the arguments of a Python call from the caller's stack to the callee's variables. Does the
// same for tracked objects.
void FinalizerTracker::transferToCallee(ShadowFrame& caller, PyCodeObject* callee) {
  const Instr* instr = tables_.instruction.instr();
  if (instr == nullptr || caller.act == nullptr || !tables_.instruction.isExecuted()) return;
  const bool keywords = instr->op == op::CALL_KW;
  if (instr->op != op::CALL && !keywords) return;
  Activation& act = *caller.act;
  const int above = keywords ? 1 : 0;  // one entry for the tuple of keyword names
  const int lower = static_cast<int>(instr->arg) + above + 2;
  PyObject* function = act.peek(calleeDepth(act, lower));
  if (!PyFunction_Check(function) || PyFunction_GET_CODE(function) != reinterpret_cast<PyObject*>(callee))
    return;
  for (int i = callsMethod(act, lower) ? lower - 1 : lower - 2; i > above; --i) {
    PyObject* object = act.peek(i);
    if (object == nullptr || !isTracked(object)) continue;
    caller.top(i) = Shadow::null();
    Py_DECREF(std::exchange(act.peek(i), nullptr));  // the callee's variable holds the object now
  }
}

bool FinalizerTracker::release() {
  for (const Tracked& t : tracked_) {
    if (hasEnded(t) || (isHeld(t.object) && !tables_.constants.contains(t.object))) continue;
    host_.endAndRelease(pyapi::typeNameOf(t.object));
    return false;
  }
  for (const Tracked& t : tracked_) {
    if (!hasEnded(t)) takeReferences(t.object);  // ended objects keep theirs until their own turn
  }
  return true;
}

void FinalizerTracker::reclaim() {
  for (const Tracked& t : tracked_) {
    if (PyObject* object = PyWeakref_GET_OBJECT(t.weak.get()); object != Py_None) {
      if (ownReferences(object) == 0) tables_.kept.add(object);
      continue;
    }
    tables_.sources.forget(t.object);
    host_.endFor("object that a step has let go of");
  }
  std::erase_if(tracked_, [](const Tracked& t) { return PyWeakref_GET_OBJECT(t.weak.get()) == Py_None; });
}

void FinalizerTracker::forgetAll() {
  for (const Tracked& t : std::exchange(tracked_, {})) {
    tables_.constants.release(t.object);
    tables_.sources.forget(t.object);
    takeReferences(t.object);
    tables_.overlays.clear();  // overlays of its dict may hold the same objects
  }
}

void FinalizerTracker::checkReturned(const std::vector<ir::ValueId>& returned) {
  for (const Tracked& t : tracked_) {
    if (std::ranges::find(returned, t.value) == returned.end())
      return host_.endFor(pyapi::typeNameOf(t.object));
  }
}

}  // namespace kintsugi::capture
