// Jumps and loops. Jump distances count from the next instruction, in code units.
#include "capture/handlers/common.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

enum class Direction { kForward, kBackward };

// Loops are where a signal or another thread has to get its turn.
template <Direction kDirection>
Flow jump(Activation& act, const Instr& instr) {
  if constexpr (kDirection == Direction::kForward) {
    act.pc += static_cast<int32_t>(instr.arg);
    return Flow::kNext;
  } else {
    act.pc -= static_cast<int32_t>(instr.arg);
    return checkEvalBreaker(act);
  }
}

template <Direction kDirection>
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
  return (truth != 0) == wanted ? jump<kDirection>(act, instr) : Flow::kNext;
}

template <Direction kDirection>
Flow popJumpIfNone(Activation& act, const Instr& instr, bool wanted) {
  PyObject* value = pop(act);
  const bool isNone = value == Py_None;
  Py_DECREF(value);
  return isNone == wanted ? jump<kDirection>(act, instr) : Flow::kNext;
}

Flow jumpIfOrPop(Activation& act, const Instr& instr, bool wanted) {
  const int truth = PyObject_IsTrue(top(act));
  if (truth < 0) {
    return Flow::kRaise;
  }
  if ((truth != 0) == wanted) {
    act.pc += static_cast<int32_t>(instr.arg);
  } else {
    Py_DECREF(pop(act));
  }
  return Flow::kNext;
}

}  // namespace

Flow jumpForward(Activation& act, const Instr& instr) { return jump<Direction::kForward>(act, instr); }
Flow jumpBackward(Activation& act, const Instr& instr) { return jump<Direction::kBackward>(act, instr); }
Flow jumpBackwardNoInterrupt(Activation& act, const Instr& instr) {
  act.pc -= static_cast<int32_t>(instr.arg);
  return Flow::kNext;
}

Flow popJumpForwardIfFalse(Activation& act, const Instr& instr) {
  return popJumpIf<Direction::kForward>(act, instr, false);
}
Flow popJumpForwardIfTrue(Activation& act, const Instr& instr) {
  return popJumpIf<Direction::kForward>(act, instr, true);
}
Flow popJumpBackwardIfFalse(Activation& act, const Instr& instr) {
  return popJumpIf<Direction::kBackward>(act, instr, false);
}
Flow popJumpBackwardIfTrue(Activation& act, const Instr& instr) {
  return popJumpIf<Direction::kBackward>(act, instr, true);
}
Flow popJumpForwardIfNone(Activation& act, const Instr& instr) {
  return popJumpIfNone<Direction::kForward>(act, instr, true);
}
Flow popJumpForwardIfNotNone(Activation& act, const Instr& instr) {
  return popJumpIfNone<Direction::kForward>(act, instr, false);
}
Flow popJumpBackwardIfNone(Activation& act, const Instr& instr) {
  return popJumpIfNone<Direction::kBackward>(act, instr, true);
}
Flow popJumpBackwardIfNotNone(Activation& act, const Instr& instr) {
  return popJumpIfNone<Direction::kBackward>(act, instr, false);
}
Flow jumpIfFalseOrPop(Activation& act, const Instr& instr) { return jumpIfOrPop(act, instr, false); }
Flow jumpIfTrueOrPop(Activation& act, const Instr& instr) { return jumpIfOrPop(act, instr, true); }

Flow getIter(Activation& act, const Instr&) {
  auto iterable = popRef(act);
  return pushResult(act, PyObject_GetIter(iterable.get()));
}

Flow forIter(Activation& act, const Instr& instr) {
  PyObject* iterator = top(act);
  PyObject* value = pyapi::nextItem(iterator);
  if (value != nullptr) {
    push(act, value);
    return Flow::kNext;
  }
  if (act.tstate->curexc_type != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_StopIteration) == 0) {
      return Flow::kRaise;
    }
    PyErr_Clear();
  }
  Py_DECREF(pop(act));
  act.pc += static_cast<int32_t>(instr.arg);
  return Flow::kNext;
}

}  // namespace kintsugi::capture::handlers
