// Since CPython 3.13 the evaluator clears and frees the frames that it has run.
#include "pyapi/frame.h"

namespace kintsugi::pyapi {

void finishFrame(PyThreadState* tstate, Frame* frame, FrameEnd how) {
  if (how == FrameEnd::kOver) {
    _PyEval_FrameClearAndPop(tstate, frame);
    return;
  }
  PyGenObject* generator = generatorOf(frame);
  tstate->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
  frame->previous = nullptr;
}

}  // namespace kintsugi::pyapi
