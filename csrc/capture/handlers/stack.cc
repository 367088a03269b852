// Simple moves on the value stack, and instructions without effect.
#include "capture/handlers/common.h"
#include "pyapi/intrinsics.h"

namespace kintsugi::capture::handlers {

Flow nop(Activation&, const Instr&) { return Flow::kNext; }

// The argument says what is resumed: 0 the start of a function, 1 a yield, 2 `yield from`, 3 `await`. For 2
// and 3 the eval breaker is not served, so that an exception can't get lost between the two generators.
Flow resume(Activation& act, const Instr& instr) {
  return instr.arg < 2 ? checkEvalBreaker(act) : Flow::kNext;
}

Flow popTop(Activation& act, const Instr&) {
  Py_XDECREF(pop(act));  // since CPython 3.14 it may be an exit method's self, or null
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
