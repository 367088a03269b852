#include "runtime/frame_rebuild.h"

#include <utility>

#include "pyapi/code.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/generator.h"
#include "pyapi/hook.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::runtime {

namespace {

// A call that rebuilds a frame: our evaluator waits for the frame that CPython pushes for it. One per thread.
struct PendingCall {
  std::vector<FrameImage>* images;
  size_t index;  // into images; 0 is the innermost
  bool raising;
  FrameRunner* runner;
  pyapi::EvalFunction previous;
  bool collecting;
  bool caught = false;
  // The pending exception, set aside during the call and restored once the frame exists.
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
};
thread_local PendingCall* pending = nullptr;

// How a frame was left: a generator's by a yield or a return, a function's by its return, which counts as an
// item.
struct Outcome {
  PySendResult status = PYGEN_ERROR;
  pyapi::Ref<> result;
};

Outcome callFrame(std::vector<FrameImage>& images, size_t index, bool raising, FrameRunner* runner);

void fillFrame(pyapi::Frame* frame, FrameImage& image) {
  const int localCount = pyapi::localsPlusCount(pyapi::codeOf(frame));
  KINTSUGI_CHECK(static_cast<int>(image.locals.size()) == localCount,
                 "a snapshot with another number of locals");
  KINTSUGI_CHECK(static_cast<int>(image.stack.size()) <= pyapi::stackCapacity(pyapi::codeOf(frame)),
                 "the stack overflows");
  std::vector<PyObject*> dropped;
  while (pyapi::stackDepth(frame) > 0) {  // what a generator was sent
    dropped.push_back(pyapi::popFrom(frame));
  }
  for (int k = 0; k < localCount; ++k) {
    dropped.push_back(pyapi::exchangeLocal(frame, k, image.locals[static_cast<size_t>(k)].release()));
  }
  if (image.handled) {
    pyapi::Ref<> before = pyapi::exchangeHandled(std::move(image.handled));
    image.stack[image.handledOver] = before ? std::move(before) : pyapi::newRef(Py_None);
  }
  for (pyapi::Ref<>& object : image.stack) {
    pyapi::pushOn(frame, object.release());
  }
  pyapi::setResumeUnit(frame, image.pc);
  for (PyObject* object : dropped) {
    Py_XDECREF(object);
  }
  if (PyGen_CheckExact(image.function.get())) {
    image.function.reset();  // who drives the generator holds it, and it has to die when it is dropped
  }
}

void pushOn(pyapi::Frame* frame, pyapi::Ref<> object) { pyapi::pushOn(frame, object.release()); }

pyapi::Ref<> popFrom(pyapi::Frame* frame) { return pyapi::steal(pyapi::popFrom(frame)); }

// Clears the pending exception if it is one of `kinds`, which C code takes for the end of an iterator.
bool swallow(std::initializer_list<PyObject*> kinds) {
  for (PyObject* kind : kinds) {
    if (PyErr_ExceptionMatches(kind) != 0) {
      PyErr_Clear();
      return true;
    }
  }
  return false;
}

// The inner frame has ended: continues the outer frame as its instruction does at the end of an iterator.
// False: an exception is pending.
bool acceptEnd(pyapi::Frame* frame, FrameImage& image, Outcome& inner) {
  const bool returned = inner.status == PYGEN_RETURN;
  switch (image.action) {
    case ir::ReturnAction::kIterate:
      if (!returned && !swallow({PyExc_StopIteration})) {
        return false;
      }
      inner.result.reset();
      popFrom(frame).reset();
      pyapi::setResumeUnit(frame, pyapi::decodeBefore(pyapi::codeOf(frame), image.pc).target);
      return true;
    case ir::ReturnAction::kDelegate:
      if (returned) {
        const pyapi::Decoded send = pyapi::decodeBefore(pyapi::codeOf(frame), image.pc);
        if (send.op == pyapi::op::SEND_AND_DROP) {
          popFrom(frame).reset();
        }
        pushOn(frame, std::move(inner.result));
        pyapi::setResumeUnit(frame, send.target);
      }
      return returned;
    case ir::ReturnAction::kNext:
      if (returned && inner.result.get() == Py_None) {
        PyErr_SetNone(PyExc_StopIteration);
      } else if (returned) {
        pyapi::raiseStopIteration(inner.result.get());
      }
      return false;
    case ir::ReturnAction::kNextOr:
      if (returned || swallow({PyExc_StopIteration})) {
        pushOn(frame, std::move(image.replacement));
        return true;
      }
      return false;
    case ir::ReturnAction::kClose:
      if (returned || swallow({PyExc_StopIteration, PyExc_GeneratorExit})) {
        pushOn(frame, pyapi::newRef(Py_None));
        return true;
      }
      return false;
    default:
      return false;
  }
}

// The frame waits for an inner one: its line is that of the call, or of the instruction that asks for an
// operand.
void setWaitingUnit(pyapi::Frame* frame, const FrameImage& image) {
  if (ir::givesOperand(image.action)) {
    pyapi::setRaisingUnit(frame, image.pc);
  } else {
    pyapi::setCallingUnit(frame, image.pc);
  }
}

// Passes the result of the inner frame to the outer one, as the instruction that called it would. False: an
// exception is pending.
bool acceptResult(pyapi::Frame* frame, FrameImage& image, Outcome& inner) {
  if (inner.status != PYGEN_NEXT) {
    return acceptEnd(frame, image, inner);
  }
  switch (image.action) {
    case ir::ReturnAction::kDiscard:
      return true;
    case ir::ReturnAction::kReplace:
      if (inner.result.get() != Py_None) {
        PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'",
                     pyapi::typeNameOf(inner.result.get()));
        return false;
      }
      pushOn(frame, std::move(image.replacement));
      return true;
    case ir::ReturnAction::kClose:
      PyErr_SetString(PyExc_RuntimeError, "generator ignored GeneratorExit");
      return false;
    case ir::ReturnAction::kCallable:
      pushOn(frame, std::move(inner.result));
      pushOn(frame, nullptr);
      return true;
    case ir::ReturnAction::kOperandBelow:
      pushOn(frame, std::move(inner.result));
      pushOn(frame, std::move(image.replacement));
      return true;
    default:
      pushOn(frame, std::move(inner.result));
      image.replacement.reset();
      return true;
  }
}

PyObject* evaluateRebuilt(PyThreadState* tstate, pyapi::Frame* frame, std::vector<FrameImage>& images,
                          size_t index, bool raising, FrameRunner* runner) {
  FrameImage& image = images[index];
  fillFrame(frame, image);
  if (runner != nullptr) {
    runner->opened(index, frame);
  }
  if (index > 0) {
    // While an inner frame runs, this one is the thread's current frame, as in CPython's evaluator.
    setWaitingUnit(frame, image);
    pyapi::FrameLink link(tstate, frame);
    Outcome inner = callFrame(images, index - 1, raising, runner);
    if (inner.status == PYGEN_ERROR) {
      pyapi::dropPolyfillEntry(reinterpret_cast<PyCodeObject*>(images[index - 1].code.get()));
    }
    pyapi::setResumeUnit(frame, image.pc);
    raising = !acceptResult(frame, image, inner);
    if (raising) {
      setWaitingUnit(frame, image);
      image.replacement.reset();
    }
  } else if (raising) {
    pyapi::setRaisingUnit(frame, image.pc);
  }
  return runner != nullptr ? runner->evaluate(index, tstate, frame, raising)
                           : pyapi::evaluateFrame(tstate, frame, raising);
}

void restoreAfterCatch(PendingCall& call) {
  pyapi::setEvalFunction(call.previous);
  if (call.collecting) {
    PyGC_Enable();
  }
  call.caught = true;
  if (call.raising) {
    PyErr_Restore(call.type, call.value, call.traceback);
  }
}

bool belongsTo(pyapi::Frame* frame, PyObject* owner) {
  if (PyGen_CheckExact(owner)) {
    return pyapi::ownedByGenerator(frame) && reinterpret_cast<PyObject*>(pyapi::generatorOf(frame)) == owner;
  }
  return reinterpret_cast<PyObject*>(pyapi::functionOf(frame)) == owner;
}

PyObject* catchFrame(PyThreadState* tstate, pyapi::Frame* frame, int throwing) {
  PendingCall* call = pending;
  if (call == nullptr || call->caught || !belongsTo(frame, (*call->images)[call->index].function.get())) {
    return pyapi::evaluateFrame(tstate, frame, throwing != 0);
  }
  pending = nullptr;
  restoreAfterCatch(*call);
  return evaluateRebuilt(tstate, frame, *call->images, call->index, call->raising, call->runner);
}

// Resumes the generator, or calls the function with dummy arguments, which fillFrame() overwrites.
Outcome enter(PyObject* owner, const PyCodeObject* code, PyObject* kwNames) {
  Outcome outcome;
  if (PyGen_CheckExact(owner)) {
    PyObject* result = nullptr;
    outcome.status = PyIter_Send(owner, Py_None, &result);
    outcome.result = pyapi::steal(result);
    return outcome;
  }
  std::vector<PyObject*> args(
      static_cast<size_t>(pyapi::argumentCount(code) + pyapi::keywordOnlyCount(code)) + 1, Py_None);
  outcome.result = pyapi::steal(
      PyObject_Vectorcall(owner, args.data(), static_cast<size_t>(pyapi::argumentCount(code)), kwNames));
  outcome.status = outcome.result ? PYGEN_NEXT : PYGEN_ERROR;
  return outcome;
}

PyObject* codeOfOwner(PyObject* owner) {
  if (PyGen_CheckExact(owner)) {
    return reinterpret_cast<PyObject*>(pyapi::codeOf(pyapi::asGenerator(owner)));
  }
  return PyFunction_Check(owner) ? PyFunction_GET_CODE(owner) : nullptr;
}

Outcome callFrame(std::vector<FrameImage>& images, size_t index, bool raising, FrameRunner* runner) {
  FrameImage& image = images[index];
  KINTSUGI_CHECK(codeOfOwner(image.function.get()) == image.code.get(),
                 "the function of a snapshot has other code");
  const auto* code = reinterpret_cast<PyCodeObject*>(image.code.get());
  pyapi::Ref<> kwNames;
  if (pyapi::keywordOnlyCount(code) > 0) {
    kwNames = pyapi::steal(pyapi::keywordOnlyNames(code));
    if (!kwNames) {
      return {};
    }
  }
  PendingCall call{&images, index, raising, runner, pyapi::evalFunction(), PyGC_Disable() != 0};
  if (raising) {
    PyErr_Fetch(&call.type, &call.value, &call.traceback);
  }
  PendingCall* outer = std::exchange(pending, &call);
  pyapi::setEvalFunction(&catchFrame);
  pyapi::Ref<> owner = image.function.clone();  // as whoever drives it holds it for the length of the call
  Outcome outcome = enter(owner.get(), code, kwNames.get());
  if (!call.caught) {
    // The call failed before there was a frame (out of memory).
    call.raising = false;
    restoreAfterCatch(call);
    Py_XDECREF(call.type);
    Py_XDECREF(call.value);
    Py_XDECREF(call.traceback);
    pending = outer;
  }
  return outcome;
}

}  // namespace

PyObject* runFrames(std::vector<FrameImage> images, bool raising, FrameRunner* runner) {
  KINTSUGI_CHECK(!images.empty(), "a snapshot without frames");
  return callFrame(images, images.size() - 1, raising, runner).result.release();
}

}  // namespace kintsugi::runtime
