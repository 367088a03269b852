// Jumps and loops.
#include "capture/handlers/common.h"
#include "pyapi/order.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

// A backward jump ends a turn of a loop, where signals and other threads are served.
Flow jump(Activation& act, const Instr& instr) {
  const bool back = instr.target < act.pc;
  act.pc = instr.target;
  const Flow flow = back ? checkEvalBreaker(act) : Flow::kNext;
  if (flow == Flow::kRaise && pyapi::servesBeforeJump()) act.pc = instr.next;
  return flow;
}

Flow popJumpIf(Activation& act, const Instr& instr, bool wanted) {
  PyObject* condition = pop(act);
  int truth = 0;
  if (condition == Py_True || condition == Py_False) [[likely]] {
    truth = condition == Py_True ? 1 : 0;
  } else {
    truth = PyObject_IsTrue(condition);
  }
  Py_DECREF(condition);
  if (truth < 0) {
    return Flow::kRaise;
  }
  return (truth != 0) == wanted ? jump(act, instr) : Flow::kNext;
}

Flow popJumpOnNone(Activation& act, const Instr& instr, bool wanted) {
  PyObject* value = pop(act);
  const bool isNone = value == Py_None;
  Py_DECREF(value);
  return isNone == wanted ? jump(act, instr) : Flow::kNext;
}

Flow jumpIfOrPop(Activation& act, const Instr& instr, bool wanted) {
  const int truth = PyObject_IsTrue(top(act));
  if (truth < 0) {
    return Flow::kRaise;
  }
  if ((truth != 0) == wanted) {
    act.pc = instr.target;
  } else {
    Py_DECREF(pop(act));
  }
  return Flow::kNext;
}

}  // namespace

Flow jumpForward(Activation& act, const Instr& instr) { return jump(act, instr); }
Flow jumpBackward(Activation& act, const Instr& instr) { return jump(act, instr); }
Flow jumpNoInterrupt(Activation& act, const Instr& instr) {
  act.pc = instr.target;
  return Flow::kNext;
}

Flow popJumpIfFalse(Activation& act, const Instr& instr) { return popJumpIf(act, instr, false); }
Flow popJumpIfTrue(Activation& act, const Instr& instr) { return popJumpIf(act, instr, true); }
Flow popJumpIfNone(Activation& act, const Instr& instr) { return popJumpOnNone(act, instr, true); }
Flow popJumpIfNotNone(Activation& act, const Instr& instr) { return popJumpOnNone(act, instr, false); }
Flow jumpIfFalseOrPop(Activation& act, const Instr& instr) { return jumpIfOrPop(act, instr, false); }
Flow jumpIfTrueOrPop(Activation& act, const Instr& instr) { return jumpIfOrPop(act, instr, true); }

Flow getIter(Activation& act, const Instr&) {
  auto iterable = popRef(act);
  return pushResult(act, PyObject_GetIter(iterable.get()));
}

Flow forIter(Activation& act, const Instr& instr) {
  PyObject* iterator = top(act);
  if (!pyapi::hasNextItem(iterator)) [[unlikely]] {  // the iterator variable of a generator, set from outside
    PyErr_Format(PyExc_TypeError, "'%.100s' object is not an iterator", pyapi::typeNameOf(iterator));
    return Flow::kRaise;
  }
  PyObject* value = pyapi::nextItem(iterator);
  if (value != nullptr) {
    push(act, value);
    return Flow::kNext;
  }
  if (pyapi::isRaising(act.tstate)) {
    if (PyErr_ExceptionMatches(PyExc_StopIteration) == 0) {
      return Flow::kRaise;
    }
    PyErr_Clear();
  }
  Py_DECREF(pop(act));
  act.pc = instr.target;
  return Flow::kNext;
}

// FOR_ITER jumps over this instruction. It is reached only after a generator that CPython runs inline; then
// the iterator and the result are on the stack.
Flow endFor(Activation& act, const Instr&) {
  Py_DECREF(pop(act));
  Py_DECREF(pop(act));
  return Flow::kNext;
}

}  // namespace kintsugi::capture::handlers
