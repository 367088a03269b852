// Callees: generators that were made in the trace.
//
// While a generator is suspended, its shadow frame is kept in its Virtual. While it runs, its frame is one of
// the recorder's frames like any other, and the frame's call site says how the consumer takes the item. A
// snapshot names the generator instead of the function, and so do objects that hold it.
#include "capture/callees.h"

#include <algorithm>
#include <utility>

#include "capture/nested_frames.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/frame.h"
#include "pyapi/generator.h"
#include "pyapi/text.h"

namespace kintsugi::capture {

// True for throw() or close() of a generator that a model has announced.
bool Callees::throwsInto(Activation& act) const {
  if (!pyapi::ownedByGenerator(act.frame)) return false;
  return watched_.isClosing() || (expected_.pending().active && expected_.pending().generator != nullptr);
}

bool Callees::resumeGenerator(Activation& act, Virtual& generator) {
  if (!generator.frame) return false;
  std::unique_ptr<ShadowFrame> frame = std::move(generator.frame);
  bool first = frame->act == nullptr;
  frame->act = &act;
  frame->caller = frames_.current();
  const bool announced = expected_.pending().active && expected_.pending().generator == &generator;
  frame->site = announced ? std::move(expected_.pending().site) : CallSite();
  frame->rebuildable = announced && expected_.pending().rebuildable && frames_.current() != nullptr &&
                       frames_.current()->rebuildable;
  if (first) {
    // CPython made the cells before the generator object. They contain the parameters.
    int freeStart = pyapi::firstFreeVariable(frame->code);
    for (int i = 0; i < pyapi::localsPlusCount(frame->code); ++i) {
      PyObject* object = pyapi::localAt(act.frame, i);
      if (object == nullptr || !PyCell_Check(object)) continue;
      if (i >= freeStart) {
        auto cell = roles_.objects.closureCell(*frame, i - freeStart, object);
        if (!cell) return false;
        frame->locals[i] = *cell;
      } else {
        frame->locals[i] = roles_.objects.newCell(object, frame->locals[i]);
      }
    }
  }
  frame->push(announced && !expected_.pending().shadows.empty() ? expected_.pending().shadows[0]
                                                                : Shadow::constant());
  if (announced) expected_.cancel();
  act.observerData = frame.get();
  frames_.enter(std::move(frame));
  virtuals_.noteChange(generator);  // a recipe that was made while it was suspended is stale
  return true;
}

// A generator function was called. CPython makes the generator object; the frame keeps the bound arguments
// for it.
bool Callees::enterGeneratorFunction(pyapi::Frame* raw) {
  if (!roles_.breaks.isLive() || pauses_.isPaused() || torchCalls_.isInside()) return false;
  PyCodeObject* code = pyapi::codeOf(raw);
  if (!expected_.pending().active || expected_.pending().generator ||
      reinterpret_cast<PyObject*>(code) != expected_.pending().code ||
      !(pyapi::flagsOf(code) & CO_GENERATOR)) {
    roles_.breaks.abort(diag::Code::KTG0102, {pyapi::utf8(pyapi::qualifiedNameOf(code))});
    return false;
  }
  Activation fake{};
  fake.frame = raw;
  auto frame = std::make_unique<ShadowFrame>();
  frame->code = code;
  frame->function = pyapi::newRef(reinterpret_cast<PyObject*>(pyapi::functionOf(raw)));
  frame->functionShadow = expected_.pending().functionShadow;
  if (!bindArguments(*frame, fake, expected_.pending())) {
    roles_.breaks.abort(diag::Code::KTG0102, {pyapi::utf8(pyapi::qualifiedNameOf(code))});
    return false;
  }
  expected_.cancel();
  expected_.setGeneratorFrame(std::move(frame));
  return true;
}

Shadow Callees::frameResult(PyObject* object) {
  std::unique_ptr<ShadowFrame> frame = expected_.takeGeneratorFrame();
  if (!frame) return returned();
  Shadow result = roles_.known.newVirtual(VirtualKind::kGenerator, object);
  Virtual& v = virtuals_[result];
  v.parts = {frame->functionShadow};
  v.partObjects.push_back(frame->function.clone());
  v.frame = std::move(frame);
  return result;
}

void Callees::closeGenerator(Virtual& generator) {
  PendingFrame pending;
  pending.generator = &generator;
  pending.rebuildable = false;
  expectFrame(std::move(pending));
  const NestedFrames nested(frames_, instruction_);
  // releaseObjects() may drop the other references.
  const pyapi::Ref<> object = pyapi::newRef(generator.object.get());
  pyapi::Ref<> done;
  {
    const WatchedGenerators::Closing closing(watched_);
    done = pyapi::steal(PyObject_CallMethod(object.get(), "close", nullptr));
  }
  if (!done) {  // like a freed generator, it reports the exception; a replay would not
    roles_.breaks.abort(diag::Code::KTG0111, {});
    PyErr_WriteUnraisable(object.get());
  }
}

bool Callees::listItems(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function,
                        PyObject* limit, int at) {
  PendingFrame pending = methodFrame(function, frame.top(at), act.peek(at));
  if (limit != nullptr) {
    pending.args.push_back(limit);
    pending.shadows.push_back(Shadow::constant());
    pending.positional = 2;
  }
  KINTSUGI_CHECK(at == 1 || at == 2, "an iterable with ", at - 1, " entries above it");
  if (at == 1) {
    pending.site = roles_.states.callSite(instr, 1, {}, ir::ReturnAction::kOperand);
  } else {
    pending.site = roles_.states.callSite(instr, 2, {}, ir::ReturnAction::kOperandBelow);
    pending.site.replacement = act.peek(1) == nullptr ? Shadow::null() : frame.top();
    pending.site.replacementObject = pyapi::newRef(act.peek(1));
  }
  expectFrame(std::move(pending));
  pyapi::Ref<> list;
  {
    const NestedFrames nested(frames_, instruction_);
    list = pyapi::steal(PyObject_CallFunctionObjArgs(function, act.peek(at), limit, nullptr));
  }
  if (!list) {
    instruction_.setExecuted(true);
    return false;
  }
  if (roles_.breaks.isLive()) frame.top(at) = returned();
  pyapi::Ref<> generator = pyapi::steal(std::exchange(act.peek(at), list.release()));
  return true;
}

// Calls a Python function that does what the instruction would do with the `count` objects on top of the
// stack. `constants` are passed after these; the function must not keep them after the call.
Flow Callees::callInPlace(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function,
                          int count, const std::vector<PyObject*>& constants, ir::ReturnAction action) {
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
  pending.site = roles_.states.callSite(instr, static_cast<size_t>(count), {}, action);
  PooledVector<PyObject*> args = pending.args;
  expectFrame(std::move(pending));
  pyapi::Ref<> result;
  {
    const NestedFrames nested(frames_, instruction_);
    result = pyapi::steal(PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
  }
  instruction_.setExecuted(true);
  if (!result) return Flow::kRaise;
  if (roles_.breaks.isLive()) {
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

}  // namespace kintsugi::capture
