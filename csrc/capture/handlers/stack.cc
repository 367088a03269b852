// Plain moves on the value stack, and the markers.
#include "capture/handlers/common.h"
#include "pyapi/intrinsics.h"

namespace kintsugi::capture::handlers {

Flow nop(Activation&, const Instr&) { return Flow::kNext; }

// The argument says what is resumed: 0 and 1 are the start of a function and after a yield; after `yield
// from` and `await` (2, 3) nothing is served, so that an exception cannot get lost between the two
// generators.
Flow resume(Activation& act, const Instr& instr) {
  return instr.arg < 2 ? checkEvalBreaker(act) : Flow::kNext;
}

Flow popTop(Activation& act, const Instr&) {
  Py_XDECREF(pop(act));  // from 3.14 on what an exit method is bound to, which may be null
  return Flow::kNext;
}

Flow pushNull(Activation& act, const Instr&) {
  push(act, nullptr);
  return Flow::kNext;
}

Flow copy(Activation& act, const Instr& instr) {
  push(act, Py_XNewRef(act.peek(static_cast<int>(instr.arg))));
  return Flow::kNext;
}

Flow swap(Activation& act, const Instr& instr) {
  std::swap(top(act), act.peek(static_cast<int>(instr.arg)));
  return Flow::kNext;
}

Flow loadConst(Activation& act, const Instr& instr) {
  pushNew(act, constArg(act, instr));
  return Flow::kNext;
}

Flow loadSmallInt(Activation& act, const Instr& instr) {
  return pushResult(act, PyLong_FromLong(static_cast<long>(instr.arg)));
}

Flow loadCommonConstant(Activation& act, const Instr& instr) {
  return pushResult(act, pyapi::commonConstant(instr.arg));
}

}  // namespace kintsugi::capture::handlers
