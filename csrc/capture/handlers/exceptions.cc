// Raising, matching and handling exceptions; entering and leaving `with`.
#include "capture/handlers/common.h"
#include "pyapi/exception_group.h"
#include "pyapi/exception_state.h"
#include "pyapi/functions.h"
#include "pyapi/intrinsics.h"
#include "pyapi/names.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

// `raise` without an operand.
Flow reraiseHandled(Activation& act) {
  PyObject* value = pyapi::handledException();
  if (value == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return Flow::kRaise;
  }
  pyapi::restoreRaised(value);
  act.keepTraceback = true;
  return Flow::kRaise;
}

// Makes an instance by calling the class without arguments. Empty with an exception pending.
pyapi::Ref<> instanceOf(PyObject* type, bool checked) {
  auto value = pyapi::steal(PyObject_CallNoArgs(type));
  if (value && checked && !PyExceptionInstance_Check(value.get())) {
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R",
                 type, Py_TYPE(value.get()));
    return nullptr;
  }
  return value;
}

// The instance that `raise` raises, given an instance or a class. Empty with an exception pending.
pyapi::Ref<> raisedInstance(pyapi::Ref<> exception) {
  if (PyExceptionClass_Check(exception.get())) {
    return instanceOf(exception.get(), true);
  }
  if (!PyExceptionInstance_Check(exception.get())) {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return nullptr;
  }
  return exception;
}

// Sets `value.__cause__`. False: an exception is pending.
bool setCause(PyObject* value, pyapi::Ref<> cause) {
  if (PyExceptionClass_Check(cause.get())) {
    cause = instanceOf(cause.get(), pyapi::kChecksCause);
    if (!cause) {
      return false;
    }
  } else if (cause.get() == Py_None) {
    cause.reset();
  } else if (!PyExceptionInstance_Check(cause.get())) {
    PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
    return false;
  }
  PyException_SetCause(value, cause.release());
  return true;
}

enum class Except { kPlain, kStar };

bool checkOneMatchType(PyObject* type, Except kind) {
  if (!PyExceptionClass_Check(type)) {
    PyErr_SetString(PyExc_TypeError,
                    "catching classes that do not inherit from BaseException is not allowed");
    return false;
  }
  if (kind == Except::kStar) {
    const int isGroup = PyObject_IsSubclass(type, PyExc_BaseExceptionGroup);
    if (isGroup > 0) {
      PyErr_SetString(PyExc_TypeError,
                      "catching ExceptionGroup with except* is not allowed. Use except instead.");
    }
    return isGroup == 0;
  }
  return true;
}

// Checks that the operand of `except` is an exception class or a tuple of them. False: an exception is
// pending.
bool checkMatchType(PyObject* type, Except kind) {
  if (!PyTuple_Check(type)) {
    return checkOneMatchType(type, kind);
  }
  // Like CPython, checks that all members are exception classes before it checks any for being a group.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type); i++) {
    if (!checkOneMatchType(PyTuple_GET_ITEM(type, i), Except::kPlain)) {
      return false;
    }
  }
  for (Py_ssize_t i = 0; kind == Except::kStar && i < PyTuple_GET_SIZE(type); i++) {
    if (!checkOneMatchType(PyTuple_GET_ITEM(type, i), kind)) {
      return false;
    }
  }
  return true;
}

struct WithNames {
  PyObject* enter;
  PyObject* exit;
  const char* noEnter;
  const char* noExit;
};

// Stack: [manager] becomes [bound exit method, result of the enter method].
Flow enterWith(Activation& act, const WithNames& names) {
  PyObject* manager = top(act);
  auto enter = pyapi::steal(pyapi::lookUpSpecial(manager, names.enter));
  if (!enter) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_Format(PyExc_TypeError, names.noEnter, pyapi::typeNameOf(manager));
    }
    return Flow::kRaise;
  }
  PyObject* exit = pyapi::lookUpSpecial(manager, names.exit);
  if (exit == nullptr) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_Format(PyExc_TypeError, names.noExit, pyapi::typeNameOf(manager));
    }
    return Flow::kRaise;
  }
  top(act) = exit;
  Py_DECREF(manager);
  return pushResult(act, PyObject_CallNoArgs(enter.get()));
}

}  // namespace

Flow raiseVarargs(Activation& act, const Instr& instr) {
  pyapi::Ref<> cause;
  if (instr.arg == 2) {
    cause = popRef(act);
  }
  if (instr.arg == 0) {
    return reraiseHandled(act);
  }
  auto value = raisedInstance(popRef(act));
  if (!value || (cause && !setCause(value.get(), std::move(cause)))) {
    return Flow::kRaise;
  }
  PyErr_SetObject(PyExceptionInstance_Class(value.get()), value.get());
  return Flow::kRaise;
}

// With an argument, the stack has the offset of the instruction that first raised. The frame gets this offset
// back, so that the traceback shows the right line.
Flow reraise(Activation& act, const Instr& instr) {
  if (instr.arg != 0) {
    PyObject* lasti = act.peek(static_cast<int>(instr.arg) + 1);
    if (!PyLong_Check(lasti)) {
      PyErr_SetString(PyExc_SystemError, "lasti is not an int");
      return Flow::kRaise;
    }
    pyapi::setRunningUnit(act.frame, static_cast<int32_t>(PyLong_AsLong(lasti)));
  }
  auto value = popRef(act);
  pyapi::restoreRaised(value.get());
  act.keepTraceback = true;
  return Flow::kRaise;
}

Flow prepReraiseStar(Activation& act, const Instr&) {
  auto raised = popRef(act);
  auto original = popRef(act);
  return pushResult(act, pyapi::prepareReraiseStar(original.get(), raised.get()));
}

// Makes the exception on top the handled one. The exception that was handled before goes below it.
Flow pushExcInfo(Activation& act, const Instr&) {
  PyObject* value = top(act);
  PyObject* before = pyapi::exchangeHandled(act.tstate, Py_NewRef(value));
  top(act) = before != nullptr ? before : Py_NewRef(Py_None);
  push(act, value);
  return Flow::kNext;
}

Flow popExcept(Activation& act, const Instr&) {
  Py_XDECREF(pyapi::exchangeHandled(act.tstate, pop(act)));
  return Flow::kNext;
}

Flow checkExcMatch(Activation& act, const Instr&) {
  auto type = popRef(act);
  if (!checkMatchType(type.get(), Except::kPlain)) {
    return Flow::kRaise;
  }
  const int matches = PyErr_GivenExceptionMatches(top(act), type.get());
  type.reset();
  return pushBool(act, matches != 0);
}

// Stack: [exception, type] becomes [rest, match], or [exception, None] if nothing matches.
Flow checkEgMatch(Activation& act, const Instr&) {
  auto type = popRef(act);
  if (!checkMatchType(type.get(), Except::kStar)) {
    return Flow::kRaise;
  }
  pyapi::GroupMatch split = pyapi::matchGroup(top(act), type.get());
  type.reset();
  if (!split.match) {
    return Flow::kRaise;
  }
  if (split.match.get() == Py_None) {
    push(act, split.match.release());
    return Flow::kNext;
  }
  PyObject* exception = top(act);
  top(act) = split.rest.release();
  PyErr_SetHandledException(split.match.get());
  push(act, split.match.release());
  Py_DECREF(exception);
  return Flow::kNext;
}

Flow loadAssertionError(Activation& act, const Instr&) {
  pushNew(act, PyExc_AssertionError);
  return Flow::kNext;
}

Flow beforeWith(Activation& act, const Instr&) {
  return enterWith(
      act, {pyapi::names::enter(), pyapi::names::exit(),
            "'%.200s' object does not support the context manager protocol",
            "'%.200s' object does not support the context manager protocol (missed __exit__ method)"});
}

Flow beforeAsyncWith(Activation& act, const Instr&) {
  return enterWith(act, {pyapi::names::asyncEnter(), pyapi::names::asyncExit(),
                         "'%.200s' object does not support the asynchronous context manager protocol",
                         "'%.200s' object does not support the asynchronous context manager protocol (missed "
                         "__aexit__ method)"});
}

// Replaces the object on top by its special method, already bound. Above it CPython has the method's self if
// the method is not bound; here that slot is null.
Flow loadSpecial(Activation& act, const Instr& instr) {
  const auto object = popRef(act);
  if (pushResult(act, pyapi::specialMethod(instr.arg, object.get())) == Flow::kRaise) {
    return Flow::kRaise;
  }
  push(act, nullptr);
  return Flow::kNext;
}

// Stack: [exit method, lasti, exception handled before, exception]. With an argument, the exit method's self
// (or null) is above the method.
Flow withExceptStart(Activation& act, const Instr& instr) {
  PyObject* value = top(act);
  auto traceback = pyapi::steal(PyException_GetTraceback(value));
  const bool unbound = instr.arg != 0 && act.peek(4) != nullptr;
  PyObject* arguments[5] = {nullptr, unbound ? act.peek(4) : nullptr, PyExceptionInstance_Class(value), value,
                            traceback ? traceback.get() : Py_None};
  PyObject** first = unbound ? arguments + 1 : arguments + 2;
  const size_t count = unbound ? 4 : 3;
  return pushResult(act, PyObject_Vectorcall(act.peek(instr.arg != 0 ? 5 : 4), first,
                                             count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

}  // namespace kintsugi::capture::handlers
