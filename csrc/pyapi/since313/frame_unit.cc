// Where a frame is in which an exception is raised, or a call under way.
//
// From CPython 3.13 on `instr_ptr` is the instruction then: its line is that of the traceback. Its handler is
// looked for one unit before it, since the evaluator is past the instruction otherwise. That is the same one
// but where the instruction is the first that a handler covers.
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

namespace {

bool sameHandler(const PyCodeObject* code, int32_t a, int32_t b) {
  const Handler x = findHandler(code, a), y = findHandler(code, b);
  return x.target == y.target && x.depth == y.depth && x.pushLasti == y.pushLasti;
}

}  // namespace

void setRaisingUnit(Frame* frame, int32_t unit) {
  // The unit after it is an inline cache of the same line, or the next instruction.
  const bool found = unit > 0 && sameHandler(codeOf(frame), unit - 1, unit);
  setRunningUnit(frame, found ? unit : unit + 1);
}

void setCallingUnit(Frame* frame, int32_t next) {
  const Decoded call = decodeBefore(codeOf(frame), next);
  if (call.op == op::UNKNOWN) {
    setResumeUnit(frame, next);
  } else {
    setRaisingUnit(frame, call.index);
  }
}

}  // namespace kintsugi::pyapi
