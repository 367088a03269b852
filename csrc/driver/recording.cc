#include "driver/recording.h"

#include <utility>

#include "capture/interpreter.h"
#include "pyapi/collector.h"
#include "pyapi/frame.h"
#include "pyapi/hook.h"
#include "pyapi/stack_limit.h"
#include "support/contain.h"
#include "support/fault.h"
#include "torchapi/run_memory.h"

namespace kintsugi::driver {

namespace {

thread_local capture::Recorder* active = nullptr;
thread_local bool besides = false;  // a callback of the collector's runs, which is no part of the program
int hookUsers = 0;                  // recordings under way on all threads (GIL)

bool isGeneratorStart(pyapi::Frame* frame) {
  return pyapi::isGeneratorCode(pyapi::codeOf(frame)) && !pyapi::ownedByGenerator(frame);
}

// Runs a callback of the collector's, and what it calls, as if nothing were recorded.
PyObject* evalBesides(PyThreadState* tstate, pyapi::Frame* frame, int throwing) {
  struct Scope {
    Scope() { besides = true; }
    ~Scope() { besides = false; }
  } const scope;
  return pyapi::evalFrameWithNext(tstate, frame, throwing);
}

// Code recurses deep. With a hook CPython's evaluator calls itself for each Python call, and the C stack
// would be used up where there is room without one. So the recording ends, and the hook goes if nobody else
// needs it. Where it has to stay, our interpreter raises RecursionError at the end of the stack.
PyObject* evalScarce(PyThreadState* tstate, pyapi::Frame* frame, int throwing, capture::Recorder* recorder) {
  if (recorder != nullptr) recorder->abort(diag::Code::KTG0104, {"what the C stack has room for"});
  const bool usedUp = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) <= pyapi::stackLimit;
  if (hookUsers == 1 && recorder != nullptr)
    pyapi::removeEvalHook();
  else if (usedUp)
    return capture::interpretFrame(tstate, frame, throwing != 0, nullptr);
  return pyapi::evalFrameWithNext(tstate, frame, throwing);
}

// The PEP 523 evaluator while something is recorded. The recorder contains its failures: a C++ exception of
// ours would leave CPython's frames broken. (No handler and no `noexcept` here: CPython ends daemon threads
// at exit by unwinding them.)
PyObject* evalHook(PyThreadState* tstate, pyapi::Frame* frame, int throwing) {
  capture::Recorder* recorder = active;
  if (pyapi::stackIsScarce()) [[unlikely]]
    return evalScarce(tstate, frame, throwing, recorder);
  if (besides) return pyapi::evalFrameWithNext(tstate, frame, throwing);
  if (recorder != nullptr && pyapi::isCollectorCallback(tstate, frame))
    return evalBesides(tstate, frame, throwing);
  if (recorder == nullptr || !recorder->isExpected(frame)) {
    // A hidden frame: CPython's evaluator would show it to the functions that the generator calls.
    const bool hidden = pyapi::isHidden(pyapi::codeOf(frame)) && pyapi::ownedByGenerator(frame);
    return hidden ? capture::interpretFrame(tstate, frame, throwing != 0, nullptr)
                  : pyapi::evalFrameWithNext(tstate, frame, throwing);
  }
  if (pyapi::isTracing(tstate)) {
    recorder->abort(diag::Code::KTG0105);
    return pyapi::evalFrameWithNext(tstate, frame, throwing);
  }
  if (isGeneratorStart(frame)) {
    recorder->enterGeneratorFunction(frame);
    return pyapi::evalFrameWithNext(tstate, frame, throwing);
  }
  return capture::interpretFrame(tstate, frame, throwing != 0, recorder);
}

// Installs the frame hook while it lives.
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

namespace {

// A recording has ended in the middle of the call. With a hook, CPython keeps the arguments of a call until
// the callee is over: what the callee drops would end late.
void removeHookIfUnused() {
  if (hookUsers == 1) pyapi::removeEvalHook();
}

}  // namespace

namespace {

// Frames of a snapshot, interpreted under the recorder.
class RecordingRunner final : public runtime::FrameRunner {
 public:
  explicit RecordingRunner(capture::Recorder& recorder) : recorder_(recorder) {}
  void opened(size_t index, pyapi::Frame* frame) override { recorder_.frameOpened(index, frame); }
  PyObject* evaluate(size_t index, PyThreadState* tstate, pyapi::Frame* frame, bool raising) override {
    recorder_.expectRestored(index);
    return capture::interpretFrame(tstate, frame, raising, &recorder_);
  }

 private:
  capture::Recorder& recorder_;
};

std::unique_ptr<capture::CaptureResult> internalFailure(const CaughtFailure& failure) {
  auto result = std::make_unique<capture::CaptureResult>();
  result->failure = diag::Diagnostic(diag::Code::KTG0000, {failure.text});
  return result;
}

// Makes a recorder, runs the call under it, and takes what it has recorded. `run` gets null when there is no
// recorder.
template <typename Make, typename Run>
RecordedCall recordCall(Make&& make, Run&& run) {
  RecordedCall call;
  std::unique_ptr<capture::Recorder> recorder;
  const auto notMade = contain([&] {
    faultPoint("recorder");
    recorder = make();
    recorder->whenEnded(removeHookIfUnused);
  });
  if (notMade) {
    call.capture = internalFailure(*notMade);
    call.result = run(nullptr);
    return call;
  }
  {
    HookScope hook;
    const torchapi::RunMemoryScope memory;  // what is recorded is a run, too
    capture::Recorder* outer = std::exchange(active, recorder.get());
    call.result = run(recorder.get());
    active = outer;
  }
  // Freeing what the recorder held may run finalizers: the user's exception must survive them.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const auto unfinished = contain([&] {
    faultPoint("finish");
    call.capture = recorder->finish();
  });
  if (unfinished) call.capture = internalFailure(*unfinished);
  recorder.reset();
  PyErr_Restore(type, value, traceback);
  return call;
}

}  // namespace

RecordedCall record(const capture::RecorderOptions& options, PyObject* function,
                    const pyapi::Arguments& args) {
  return recordCall([&] { return std::make_unique<capture::Recorder>(options, function, args); },
                    [&](capture::Recorder*) { return args.callFunction(function); });
}

RecordedCall recordSide(const capture::RecorderOptions& options, const capture::SideStart& start,
                        std::vector<runtime::FrameImage> images, const std::function<void()>& begun) {
  return recordCall([&] { return std::make_unique<capture::Recorder>(options, start); },
                    [&](capture::Recorder* recorder) {
                      begun();
                      if (recorder == nullptr) return runtime::runFrames(std::move(images), false);
                      RecordingRunner runner(*recorder);
                      return runtime::runFrames(std::move(images), false, &runner);
                    });
}

}  // namespace kintsugi::driver
