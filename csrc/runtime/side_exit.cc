#include "runtime/side_exit.h"

#include "pyapi/code.h"
#include "pyapi/exception_state.h"
#include "runtime/compiled_trace.h"
#include "support/check.h"
#include "support/fault.h"

namespace kintsugi::runtime {

namespace {

bool captureFrame(Materializer& make, const ir::Trace& trace, const ir::FrameState& state,
                  FrameImage& image) {
  image.pc = state.pc;
  image.action = state.action;
  image.function = make.object(state.function);
  if (!image.function) {
    return false;
  }
  auto fill = [&make](std::span<const ir::Operand> operands, std::vector<pyapi::Ref<>>& out) {
    out.resize(operands.size());
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].kind != ir::OperandKind::kNull && !make.get(operands[k], out[k])) {
        return false;
      }
    }
    return true;
  };
  image.handledOver = state.handledOver;
  const auto* code = reinterpret_cast<const PyCodeObject*>(image.code.get());
  // The frame is filled by index.
  KINTSUGI_CHECK(state.localCount == pyapi::localsPlusCount(code) &&
                     state.stackCount <= pyapi::stackCapacity(code) && state.pc >= 0 &&
                     state.pc <= pyapi::codeUnitCount(code),
                 "a snapshot with ", state.localCount, " locals and ", state.stackCount, " on the stack at ",
                 state.pc, " of another code object");
  KINTSUGI_CHECK(state.handled.kind == ir::OperandKind::kNull || state.handledOver < state.stackCount,
                 "the exception handled before is in slot ", state.handledOver, " of ", state.stackCount);
  return make.get(state.handled, image.handled) && fill(trace.localsOf(state), image.locals) &&
         fill(trace.stackOf(state), image.stack) &&
         (!ir::hasReplacement(state.action) || make.get(state.replacement, image.replacement));
}

}  // namespace

bool isRebuildable(const ir::Trace& trace, ir::StateId state) {
  for (; state != ir::kNone; state = trace.states[state].parent) {
    if (!trace.states[state].rebuildable) {
      return false;
    }
  }
  return true;
}

bool captureFrames(const RunView& run, ir::StateId stateId, std::vector<FrameImage>& images,
                   ExitContext* context) {
  faultPoint("exit");
  const recording::Recording& recording = run.recording;
  const ir::Trace& trace = recording.document.trace;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  Materializer make(run);
  auto failed = [&] {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return false;
  };
  for (ir::StateId id = stateId; id != ir::kNone; id = trace.states[id].parent) {
    const ir::FrameState& state = trace.states[id];
    KINTSUGI_CHECK(state.rebuildable, "an exit through a snapshot that can't be rebuilt");
    FrameImage& image = images.emplace_back();
    image.code = recording.consts[state.code].clone();
    if (!captureFrame(make, trace, state, image)) {
      return failed();
    }
  }
  if (context != nullptr && !collectObjects(run, make, stateId, *context)) {
    return failed();
  }
  // An exception raised inside an `except` block has the handled exception as its __context__. The trace has
  // not entered the handler, so it is set here.
  for (const FrameImage& image : images) {
    if (type != nullptr && image.handled) {
      PyErr_NormalizeException(&type, &value, &traceback);
      pyapi::addContext(value, image.handled.get(), pyapi::handledException());
      break;
    }
  }
  PyErr_Restore(type, value, traceback);
  return true;
}

}  // namespace kintsugi::runtime
