#include "driver/recording.h"

#include "capture/interpreter.h"
#include "pyapi/frame.h"
#include "pyapi/hook.h"
#include "support/check.h"

namespace kintsugi::driver {

namespace {

thread_local capture::Recorder* active = nullptr;
int hookUsers = 0;  // recordings under way on all threads (GIL)

bool isGeneratorStart(_PyInterpreterFrame* frame) {
  return pyapi::isGeneratorCode(pyapi::codeOf(frame)) && !pyapi::ownedByGenerator(frame);
}

// The PEP 523 evaluator while something is recorded.
PyObject* evalHook(PyThreadState* tstate, _PyInterpreterFrame* frame, int throwing) {
  capture::Recorder* recorder = active;
  if (recorder == nullptr || !recorder->wants(frame)) return pyapi::evalFrameBelow(tstate, frame, throwing);
  if (pyapi::isTracing(tstate)) {
    recorder->abort(diag::Code::KTG0105);
    return pyapi::evalFrameBelow(tstate, frame, throwing);
  }
  if (isGeneratorStart(frame)) {
    recorder->enterGeneratorFunction(frame);
    return pyapi::evalFrameBelow(tstate, frame, throwing);
  }
  return capture::interpretFrame(tstate, frame, throwing != 0, recorder);
}

// Frames reach the hook only while this lives.
class HookScope {
 public:
  HookScope() {
    ++hookUsers;
    pyapi::installEvalHook(evalHook);
  }
  ~HookScope() {
    if (--hookUsers == 0) pyapi::removeEvalHook();
  }
  HookScope(const HookScope&) = delete;
};

}  // namespace

bool isRecording() { return active != nullptr; }

RecordedCall record(const capture::RecorderOptions& options, PyObject* function, PyObject* const* args,
                    size_t nargs, PyObject* kwnames) {
  RecordedCall call;
  std::unique_ptr<capture::Recorder> recorder;
  try {
    recorder = std::make_unique<capture::Recorder>(options, function, args, nargs, kwnames);
  } catch (const InternalError& error) {
    call.capture = std::make_unique<capture::CaptureResult>();
    call.capture->failure = diag::Diagnostic(diag::Code::KTG0000, {error.what()});
  }
  capture::Recorder* outer = active;
  if (recorder) {
    HookScope hook;
    active = recorder.get();
    call.result = _PyFunction_Vectorcall(function, args, nargs, kwnames);
    active = outer;
  } else {
    call.result = _PyFunction_Vectorcall(function, args, nargs, kwnames);
    return call;
  }
  // Freeing what the recorder held may run finalizers: the user's exception must survive them.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  try {
    call.capture = recorder->finish();
  } catch (const InternalError& error) {
    call.capture = std::make_unique<capture::CaptureResult>();
    call.capture->failure = diag::Diagnostic(diag::Code::KTG0000, {error.what()});
  }
  recorder.reset();
  PyErr_Restore(type, value, traceback);
  return call;
}

}  // namespace kintsugi::driver
