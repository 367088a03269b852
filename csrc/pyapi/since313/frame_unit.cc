// The place of a frame while an exception is raised in it, or while a call in it is under way.
//
// Since CPython 3.13 `instr_ptr` is the instruction itself then, and the traceback shows its line. CPython
// searches the exception table one unit before `instr_ptr`, because otherwise the evaluator has already moved
// past the instruction. Both units have the same handler, unless the instruction is the first one that a
// handler covers.
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
  // The next unit is an inline cache, which has the same line, or the next instruction.
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
