// The evaluation loop: entering and leaving frames, unwinding, handing frames over to CPython's evaluator.
#include "capture/interpreter.h"

#include "capture/handlers/common.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/stack_limit.h"
#include "pyapi/tracing.h"

namespace kintsugi::capture {

namespace {

// The innermost interpreted frame of this thread. It takes so few bytes that the fast TLS model may be used
// in a shared library.
[[gnu::tls_model("initial-exec")]] thread_local Activation* innermost = nullptr;

// A frame that is being evaluated, linked into the thread's chains the way CPython's evaluator does it.
class RunningFrame {
 public:
  RunningFrame(PyThreadState* tstate, pyapi::Frame* frame, const CodeInfo* code) : link_(tstate, frame) {
    act_.tstate = tstate;
    act_.frame = frame;
    act_.code = code;
    act_.sp = pyapi::takeStack(frame);
    act_.pc = pyapi::resumeUnit(frame);
    act_.kwnames = nullptr;
    act_.result = nullptr;
    act_.caller = innermost;
    act_.observerData = nullptr;
    act_.observed = false;
    act_.keepTraceback = false;
    innermost = &act_;
  }

  RunningFrame(const RunningFrame&) = delete;
  RunningFrame& operator=(const RunningFrame&) = delete;

  ~RunningFrame() { innermost = act_.caller; }

  Activation& activation() { return act_; }
  bool tracing() const { return link_.tracing(); }

 private:
  pyapi::FrameLink link_;
  Activation act_;
};

void cutStack(Activation& act, PyObject** newTop) {
  while (act.sp > newTop) {
    Py_XDECREF(pop(act));
  }
}

void addTraceback(Activation& act) {
  if (pyapi::isIncomplete(act.frame)) {
    return;
  }
  PyFrameObject* frameObject = pyapi::currentFrameObject(act.tstate, act.frame);
  if (frameObject != nullptr) {
    PyTraceBack_Here(frameObject);
  }
}

// Finds and enters the handler of the pending exception. Returns false if there is none; the stack is empty
// then.
bool unwind(Activation& act, StepObserver* observer) {
  // A unit inside the raising instruction. Where CPython serves the eval breaker after a jump, it is the unit
  // just before the target.
  const int32_t unit = act.pc - 1;
  if (!act.keepTraceback && !pyapi::isHidden(pyapi::codeOf(act.frame))) {
    addTraceback(act);
    pyapi::traceException(act.tstate, act.frame);
  }
  act.keepTraceback = false;
  act.kwnames = nullptr;
  for (;;) {
    const pyapi::Handler handler = pyapi::findHandler(pyapi::codeOf(act.frame), unit);
    PyObject** base = pyapi::stackBase(act.frame);
    if (handler.target < 0) {
      cutStack(act, base);
      if (pyapi::isTracing(act.tstate)) {
        pyapi::traceUnwind(act.tstate, act.frame);
      }
      return false;
    }
    cutStack(act, base + handler.depth);
    if (handler.pushLasti) {
      PyObject* lasti = pyapi::newPlace(pyapi::runningUnit(act.frame));
      if (lasti == nullptr) {
        continue;
      }
      push(act, lasti);
    }
    push(act, pyapi::takeRaised());
    act.pc = handler.target;
    if (observer != nullptr) {
      observer->caught(act, handler.depth, handler.pushLasti);
    }
    return true;
  }
}

// Runs until the frame is left, or until CPython's evaluator has to take it over: a tracing function is set,
// or the observer wants to see no more of it (the result is kNext then). `flow` is kRaise if an exception is
// thrown into the frame.
template <bool kObserved>
Flow run(RunningFrame& running, StepObserver* observer, Flow flow) {
  Activation& act = running.activation();
  const CodeInfo& code = *act.code;
  pyapi::CodeUnit* units = pyapi::codeUnits(pyapi::codeOf(act.frame));
  for (;;) {
    if (flow != Flow::kNext) [[unlikely]] {
      if (flow != Flow::kRaise) {
        return flow;
      }
      if (!unwind(act, observer)) {
        return Flow::kRaise;
      }
    }
    if (running.tracing() || (kObserved && !act.observed)) [[unlikely]] {
      return Flow::kNext;
    }
    const Instr& instr = code.at(act.pc);
    act.pc = instr.next;
    pyapi::setRunningUnit(act.frame, units, instr.index);
    flow = kObserved ? observer->step(act, instr) : instr.run(act, instr);
  }
}

// A generator function's first run only makes the generator: MAKE_CELL, COPY_FREE_VARS, RETURN_GENERATOR.
// CPython does this with functions that it does not export, so the frame is left to it.
bool onlyMakesGenerator(pyapi::Frame* frame) {
  return pyapi::isGeneratorCode(pyapi::codeOf(frame)) && !pyapi::ownedByGenerator(frame);
}

// Returns false with an exception if the recursion limit or the stack's end is reached.
bool enterCall(PyThreadState* tstate) {
  if (!pyapi::enterRecursion(tstate, "")) {
    return false;
  }
  if (!pyapi::checkStackLimit()) {
    pyapi::leaveRecursion(tstate);
    return false;
  }
  return true;
}

}  // namespace

Flow serveEvalBreaker(Activation& act) {
  return pyapi::handleEvalBreaker(act.tstate) ? Flow::kNext : Flow::kRaise;
}

PyObject* interpretFrame(PyThreadState* tstate, pyapi::Frame* frame, bool throwing, StepObserver* observer) {
  if (pyapi::isTracing(tstate) || onlyMakesGenerator(frame)) {
    return pyapi::evaluateFrame(tstate, frame, throwing);
  }
  const CodeInfo* code = CodeInfo::of(pyapi::codeOf(frame));
  if (code == nullptr) {
    PyErr_Clear();  // no memory for the decoded code, which CPython does not need
    return pyapi::evaluateFrame(tstate, frame, throwing);
  }
  Flow flow = Flow::kNext;
  PyObject* result = nullptr;
  if (!enterCall(tstate)) {
    pyapi::finishFrame(tstate, frame, pyapi::FrameEnd::kOver);
    return nullptr;
  }
  {
    RunningFrame running(tstate, frame, code);
    Activation& act = running.activation();
    if (observer != nullptr && !observer->enterFrame(act, throwing)) {
      observer = nullptr;
    }
    act.observed = observer != nullptr;
    // An observer that declines the frame may also leave an exception, which the frame then raises at once.
    const bool refused = observer == nullptr && !throwing && PyErr_Occurred() != nullptr;
    flow = throwing || refused ? Flow::kRaise : Flow::kNext;
    flow = observer != nullptr ? run<true>(running, observer, flow) : run<false>(running, nullptr, flow);
    pyapi::giveStack(frame, act.sp);
    if (observer != nullptr) {
      observer->leaveFrame(act, flow);
    }
    pyapi::leaveRecursion(tstate);
    if (flow == Flow::kNext) {
      pyapi::setResumeUnit(frame, act.pc);
    }
    result = act.result;
  }
  if (flow == Flow::kNext) {
    return pyapi::evaluateFrame(tstate, frame, false);
  }
  pyapi::finishFrame(tstate, frame,
                     flow == Flow::kYield ? pyapi::FrameEnd::kSuspended : pyapi::FrameEnd::kOver);
  return result;
}

}  // namespace kintsugi::capture
