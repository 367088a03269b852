// Recorder: generators that were made in the trace.
//
// While one waits, its shadow frame lies in its Virtual; while it runs, its frame is one of the recorder's
// like any other, whose call site says how the consumer takes the item. A snapshot names the generator in
// place of the function, and what others hold is the generator too.
//
// The recorder's own references keep a generator alive that the program has dropped. Where closing it would
// run code (it waits inside `try` or `with`, and a handler may take GeneratorExit), it is *watched*, and
// closed as soon as nobody else holds it.
#include <algorithm>
#include <utility>

#include "capture/nested.h"
#include "capture/recorder.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/frame.h"
#include "pyapi/generator.h"

namespace kintsugi::capture {

// throw() or close() of a generator that a model has announced.
bool Recorder::throwsInto(Activation& act) const {
  if (!pyapi::ownedByGenerator(act.frame)) return false;
  return closing_ > 0 || (pending_.active && pending_.generator != nullptr);
}

bool Recorder::resumeGenerator(Activation& act, Virtual& generator) {
  if (!generator.frame) return false;
  std::unique_ptr<ShadowFrame> frame = std::move(generator.frame);
  bool first = frame->act == nullptr;
  frame->act = &act;
  frame->caller = current_;
  const bool announced = pending_.active && pending_.generator == &generator;
  frame->site = announced ? std::move(pending_.site) : CallSite();
  frame->rebuildable = announced && pending_.rebuildable && current_ != nullptr && canExit(*current_);
  if (first) {
    // The cells were made before the generator object was; their contents are the parameters.
    int freeStart = pyapi::firstFreeVariable(frame->code);
    for (int i = 0; i < pyapi::localsPlusCount(frame->code); ++i) {
      PyObject* object = pyapi::localAt(act.frame, i);
      if (object == nullptr || !PyCell_Check(object)) continue;
      if (i >= freeStart) {
        auto cell = closureCell(*frame, i - freeStart, object);
        if (!cell) return false;
        frame->locals[i] = *cell;
      } else {
        frame->locals[i] = newCell(object, frame->locals[i]);
      }
    }
  }
  frame->push(announced && !pending_.shadows.empty() ? pending_.shadows[0] : Shadow::constant());
  if (announced) pending_.active = false;
  act.observerData = frame.get();
  current_ = frame.get();
  frames_.push_back(std::move(frame));
  touched();  // it runs now
  return true;
}

// A generator function has been called: CPython makes the object; its frame waits with the bound arguments.
bool Recorder::enterGeneratorFunction(pyapi::Frame* raw) {
  if (!live_ || paused_ > 0 || torchDepth_ > 0) return false;
  PyCodeObject* code = pyapi::codeOf(raw);
  if (!pending_.active || pending_.generator || reinterpret_cast<PyObject*>(code) != pending_.code ||
      !(pyapi::flagsOf(code) & CO_GENERATOR)) {
    abort(diag::Code::KTG0102, {PyUnicode_AsUTF8(pyapi::qualifiedNameOf(code))});
    return false;
  }
  Activation fake{};
  fake.frame = raw;
  auto frame = std::make_unique<ShadowFrame>();
  frame->code = code;
  frame->function = pyapi::newRef(reinterpret_cast<PyObject*>(pyapi::functionOf(raw)));
  frame->functionShadow = pending_.functionShadow;
  if (!bindArguments(*frame, fake, pending_)) {
    abort(diag::Code::KTG0102, {PyUnicode_AsUTF8(pyapi::qualifiedNameOf(code))});
    return false;
  }
  pending_.active = false;
  newGenerator_ = std::move(frame);
  return true;
}

Shadow Recorder::frameResult(PyObject* object) {
  if (!newGenerator_) return returned();
  std::unique_ptr<ShadowFrame> frame = std::move(newGenerator_);
  Shadow result = newVirtual(VirtualKind::kGenerator, object);
  Virtual& v = virtualOf(result);
  v.parts = {frame->functionShadow};
  v.partObjects.push_back(frame->function.clone());
  v.frame = std::move(frame);
  return result;
}

// The generator whose frame runs; null: the trace does not know it (it has escaped).
Virtual* Recorder::runningGenerator(Activation& act) {
  auto it = virtualIds_.find(reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame)));
  if (it == virtualIds_.end()) return nullptr;
  Virtual& v = *virtuals_[it->second];
  return v.kind == VirtualKind::kGenerator && v.value == ir::kNone ? &v : nullptr;
}

// A generator waits now: will code run when it is dropped here?
void Recorder::watch(uint32_t generator) {
  Virtual& v = *virtuals_[generator];
  auto isWatched = [&](Shadow shadow) {
    return shadow.isVirtual() &&
           std::find(watched_.begin(), watched_.end(), shadow.virtualId()) != watched_.end();
  };
  auto holdsWatched = [&](const std::vector<Shadow>& slots) {
    return std::any_of(slots.begin(), slots.end(), isWatched);
  };
  const bool runs = !pyapi::closesQuietly(pyapi::asGenerator(v.object.get())) ||
                    holdsWatched(v.frame->locals) || holdsWatched(v.frame->stack);
  if (runs && !isWatched(Shadow::virt(generator))) watched_.push_back(generator);
}

// Between two instructions: closes the watched generators that only the recorder holds.
void Recorder::closeDropped() {
  for (size_t i = 0; live_ && i < watched_.size();) {
    Virtual& v = *virtuals_[watched_[i]];
    const bool waits = v.frame != nullptr && v.kind == VirtualKind::kGenerator;
    if (waits && Py_REFCNT(v.object.get()) > 1) {
      ++i;
      continue;
    }
    watched_.erase(watched_.begin() + static_cast<ptrdiff_t>(i));
    if (!waits) continue;  // it runs (and will be watched again), is over, or has escaped
    closeOne(v);
    i = 0;
  }
}

void Recorder::closeOne(Virtual& generator) {
  PendingFrame pending;
  pending.generator = &generator;
  pending.rebuildable = false;
  expectFrame(std::move(pending));
  const Nested nested(*this);
  ++closing_;
  const pyapi::Ref<> object = pyapi::newRef(generator.object.get());  // an end of the recording drops it
  pyapi::Ref<> done = pyapi::steal(PyObject_CallMethod(object.get(), "close", nullptr));
  --closing_;
  if (!done) {  // as when a generator is freed; a replay would not say so
    abort(diag::Code::KTG0111, {});
    PyErr_WriteUnraisable(object.get());
  }
}

// The generator on top of the stack becomes a list of its items, before the instruction (which would ask for
// them itself) has run. False: it has raised.
bool Recorder::listItems(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function,
                         PyObject* limit) {
  PendingFrame pending = methodFrame(function, frame.top(), act.peek(1));
  if (limit != nullptr) {
    pending.args.push_back(limit);
    pending.shadows.push_back(Shadow::constant());
    pending.positional = 2;
  }
  pending.site = callSite(instr, 1);
  pending.site.again = true;
  expectFrame(std::move(pending));
  pyapi::Ref<> list;
  {
    const Nested nested(*this);
    list = pyapi::steal(PyObject_CallFunctionObjArgs(function, act.peek(1), limit, nullptr));
  }
  if (!list) {
    executed_ = true;
    return false;
  }
  if (live_) frame.top() = returned();
  pyapi::Ref<> generator = pyapi::steal(std::exchange(act.peek(1), list.release()));
  return true;
}

// A Python function does what the instruction would do with the `count` objects on top of the stack. It is
// given `constants` (which it holds no longer than the call) behind these.
Flow Recorder::callInPlace(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function,
                           int count, const std::vector<PyObject*>& constants) {
  PendingFrame pending = methodFrame(function, frame.top(count), act.peek(count));
  for (int i = count - 1; i >= 1; --i) {
    pending.args.push_back(act.peek(i));
    pending.shadows.push_back(frame.top(i));
  }
  for (PyObject* constant : constants) {
    pending.args.push_back(constant);
    pending.shadows.push_back(Shadow::constant());
  }
  pending.positional = pending.args.size();
  pending.site = callSite(instr, static_cast<size_t>(count));
  std::vector<PyObject*> args = pending.args;
  expectFrame(std::move(pending));
  pyapi::Ref<> result;
  {
    const Nested nested(*this);
    result = pyapi::steal(PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
  }
  executed_ = true;
  if (!result) return Flow::kRaise;
  if (live_) {
    Shadow shadow = frameResult(result.get());
    frame.drop(static_cast<size_t>(count));
    frame.push(shadow);
  }
  for (int i = 0; i < count; ++i) {
    PyObject* gone = *--act.sp;
    Py_DECREF(gone);
  }
  *act.sp++ = result.release();
  return Flow::kNext;
}

// The recording has ended: what the program drops from now on is freed by itself.
void Recorder::letGo() {
  letGo_ = true;
  Mortals::end(*this);
  watched_.clear();
  finalized_.clear();
  virtualIds_.clear();
  sourceIds_.clear();
  std::fill(sourceObjects_.begin(), sourceObjects_.end(), nullptr);
  const pyapi::PendingErrorScope kept;
  // The newest first: where an exception has emptied the stacks of frames, the inner loops' iterators go
  // before the outer ones'. (Locals live on with the traceback.)
  for (size_t i = virtuals_.size(); i-- > 0;) {  // handlers of outer frames may still look at the rest
    virtuals_[i]->object.reset();
    for (pyapi::Ref<>& part : virtuals_[i]->partObjects) part.reset();
  }
  kept_.clear();
}

// The call is over. A watched generator that still waits is part of the result, or was dropped together with
// something that held it, which went unnoticed.
void Recorder::checkWatched() {
  const ir::Trace& trace = document_.trace;
  std::vector<ir::Operand> open(trace.operandsOf(trace.code.back()).begin(),
                                trace.operandsOf(trace.code.back()).end());
  std::unordered_set<ir::RecipeId> reached;
  while (!open.empty()) {
    const ir::Operand operand = open.back();
    open.pop_back();
    if (operand.kind != ir::OperandKind::kRecipe || !reached.insert(operand.id).second) continue;
    const auto& parts = trace.recipes[operand.id].parts;
    open.insert(open.end(), parts.begin(), parts.end());
  }
  for (uint32_t id : watched_) {
    const Virtual& v = *virtuals_[id];
    if (v.kind != VirtualKind::kGenerator || !v.frame || v.value != ir::kNone) continue;
    if (v.recipe == ir::kNone || !reached.contains(v.recipe)) {
      abort(diag::Code::KTG0302,
            {"generator (" + std::string(PyUnicode_AsUTF8(pyapi::qualifiedNameOf(v.frame->code))) +
             ") that is dropped while it waits"});
      return;
    }
  }
}

}  // namespace kintsugi::capture
