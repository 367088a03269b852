#include "runtime/frame_rebuild.h"

#include "pyapi/frame.h"
#include "support/check.h"

namespace kintsugi::runtime {

namespace {

// The call under way on this thread whose frame the evaluator waits for.
struct PendingCall {
  std::vector<FrameImage>* images;
  size_t index;  // into images; 0 is the innermost
  bool raising;
  FrameRunner* runner;
  _PyFrameEvalFunction previous;
  bool collecting;
  bool caught = false;
  // The pending exception, kept away from the call's own business until the frame is there.
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
};
thread_local PendingCall* pending = nullptr;

PyObject* callFrame(std::vector<FrameImage>& images, size_t index, bool raising, FrameRunner* runner);

// The frame is on top of its thread while it calls: what CPython's evaluator does at its start.
class FrameLink {
 public:
  FrameLink(PyThreadState* tstate, _PyInterpreterFrame* frame) : tstate_(tstate) {
    cframe_.use_tracing = tstate->cframe->use_tracing;
    cframe_.previous = tstate->cframe;
    frame->is_entry = true;
    frame->previous = tstate->cframe->current_frame;
    cframe_.current_frame = frame;
    tstate->cframe = &cframe_;
  }
  ~FrameLink() {
    tstate_->cframe = cframe_.previous;
    tstate_->cframe->use_tracing = cframe_.use_tracing;
  }
  FrameLink(const FrameLink&) = delete;

 private:
  PyThreadState* tstate_;
  _PyCFrame cframe_;
};

void fillFrame(_PyInterpreterFrame* frame, FrameImage& image) {
  PyObject** slots = pyapi::localsPlus(frame);
  const int localCount = pyapi::localsPlusCount(frame->f_code);
  KINTSUGI_CHECK(static_cast<int>(image.locals.size()) == localCount,
                 "a snapshot with another number of locals");
  KINTSUGI_CHECK(static_cast<int>(image.stack.size()) <= pyapi::stackCapacity(frame->f_code),
                 "the stack overflows");
  std::vector<PyObject*> dropped;
  for (int k = 0; k < localCount; ++k) {
    dropped.push_back(slots[k]);
    slots[k] = image.locals[static_cast<size_t>(k)].release();
  }
  for (size_t k = 0; k < image.stack.size(); ++k) {
    slots[static_cast<size_t>(localCount) + k] = image.stack[k].release();
  }
  pyapi::setStackDepth(frame, static_cast<int>(image.stack.size()));
  pyapi::setResumeUnit(frame, image.pc);
  for (PyObject* object : dropped) {
    Py_XDECREF(object);
  }
}

// Takes over the result of the frame further in. False: it raised.
bool acceptResult(_PyInterpreterFrame* frame, FrameImage& image, PyObject* result) {
  if (result == nullptr) {
    return false;
  }
  PyObject** top = pyapi::stackPointer(frame);
  switch (image.action) {
    case ir::ReturnAction::kPush:
      *top++ = result;
      break;
    case ir::ReturnAction::kDiscard:
      Py_DECREF(result);
      break;
    case ir::ReturnAction::kReplace:
      if (result != Py_None) {
        PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'",
                     Py_TYPE(result)->tp_name);
        Py_DECREF(result);
        return false;
      }
      Py_DECREF(result);
      *top++ = image.replacement.release();
      break;
  }
  pyapi::setStackPointer(frame, top);
  return true;
}

PyObject* evaluateRebuilt(PyThreadState* tstate, _PyInterpreterFrame* frame, std::vector<FrameImage>& images,
                          size_t index, bool raising, FrameRunner* runner) {
  FrameImage& image = images[index];
  fillFrame(frame, image);
  if (runner != nullptr) {
    runner->opened(index, frame);
  }
  if (index > 0) {
    PyObject* result = nullptr;
    {
      FrameLink link(tstate, frame);
      result = callFrame(images, index - 1, raising, runner);
    }
    raising = !acceptResult(frame, image, result);
  } else if (raising) {
    // CPython points at the instruction that raised, where it otherwise points before the next one.
    pyapi::setPrevInstrIndex(frame, image.pc);
  }
  return runner != nullptr ? runner->evaluate(index, tstate, frame, raising)
                           : _PyEval_EvalFrameDefault(tstate, frame, raising ? 1 : 0);
}

void restoreAfterCatch(PendingCall& call) {
  PyInterpreterState* interp = PyThreadState_Get()->interp;
  _PyInterpreterState_SetEvalFrameFunc(interp, call.previous);
  if (call.collecting) {
    PyGC_Enable();
  }
  call.caught = true;
  if (call.raising) {
    PyErr_Restore(call.type, call.value, call.traceback);
  }
}

PyObject* catchFrame(PyThreadState* tstate, _PyInterpreterFrame* frame, int throwing) {
  PendingCall* call = pending;
  if (call == nullptr || call->caught ||
      reinterpret_cast<PyObject*>(frame->f_func) != (*call->images)[call->index].function.get()) {
    return _PyEval_EvalFrameDefault(tstate, frame, throwing);
  }
  pending = nullptr;
  restoreAfterCatch(*call);
  return evaluateRebuilt(tstate, frame, *call->images, call->index, call->raising, call->runner);
}

// Calls the function of an image with as many arguments as it needs; their values are overwritten.
PyObject* callFrame(std::vector<FrameImage>& images, size_t index, bool raising, FrameRunner* runner) {
  FrameImage& image = images[index];
  KINTSUGI_CHECK(PyFunction_Check(image.function.get()) &&
                     reinterpret_cast<PyFunctionObject*>(image.function.get())->func_code == image.code.get(),
                 "the function of a snapshot has other code");
  const auto* code = reinterpret_cast<PyCodeObject*>(image.code.get());
  std::vector<PyObject*> args(static_cast<size_t>(code->co_argcount + code->co_kwonlyargcount) + 1, Py_None);
  pyapi::Ref<> kwNames;
  if (code->co_kwonlyargcount > 0) {
    kwNames = pyapi::steal(PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount,
                                            code->co_argcount + code->co_kwonlyargcount));
    if (!kwNames) {
      return nullptr;
    }
  }
  PyInterpreterState* interp = PyThreadState_Get()->interp;
  PendingCall call{
      &images, index, raising, runner, _PyInterpreterState_GetEvalFrameFunc(interp), PyGC_Disable() != 0};
  if (raising) {
    PyErr_Fetch(&call.type, &call.value, &call.traceback);
  }
  PendingCall* outer = std::exchange(pending, &call);
  _PyInterpreterState_SetEvalFrameFunc(interp, &catchFrame);
  PyObject* result = PyObject_Vectorcall(image.function.get(), args.data(),
                                         static_cast<size_t>(code->co_argcount), kwNames.get());
  if (!call.caught) {
    // The call failed before there was a frame (out of memory).
    call.raising = false;
    restoreAfterCatch(call);
    Py_XDECREF(call.type);
    Py_XDECREF(call.value);
    Py_XDECREF(call.traceback);
    pending = outer;
  }
  return result;
}

}  // namespace

PyObject* runFrames(std::vector<FrameImage> images, bool raising, FrameRunner* runner) {
  KINTSUGI_CHECK(!images.empty(), "a snapshot without frames");
  return callFrame(images, images.size() - 1, raising, runner);
}

}  // namespace kintsugi::runtime
