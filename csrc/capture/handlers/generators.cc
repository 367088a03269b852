// Leaving a frame (return, yield), generators, coroutines and async generators.
#include "capture/handlers/common.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/generator.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

Flow returnValue(Activation& act, const Instr&) {
  act.result = pop(act);
  return Flow::kReturn;
}

Flow returnConst(Activation& act, const Instr& instr) {
  act.result = Py_NewRef(constArg(act, instr));
  return Flow::kReturn;
}

// CPython's evaluator runs this instruction: frames of generator functions begin there.
Flow returnGenerator(Activation& act, const Instr& instr) { return unknownOpcode(act, instr); }

// Must not raise: the compiler's exception table would take the exception for a failed close() or throw().
Flow yieldValue(Activation& act, const Instr&) {
  act.result = pop(act);
  pyapi::setResumeUnit(act.frame, act.pc);
  pyapi::markSuspended(pyapi::generatorOf(act.frame));
  return Flow::kYield;
}

// Stack: [receiver, value] becomes [receiver, what it yielded]. If the receiver returns, the instruction
// jumps, and the stack is [receiver, what it returned].
Flow send(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  PyObject* result = nullptr;
  const PySendResult status = PyIter_Send(top(act), value.get(), &result);
  value.reset();
  if (status == PYGEN_ERROR) {
    return Flow::kRaise;
  }
  push(act, result);
  if (status == PYGEN_RETURN) {
    act.pc = instr.target;
  }
  return Flow::kNext;
}

Flow endSend(Activation& act, const Instr&) {
  PyObject* value = pop(act);
  PyObject* receiver = top(act);
  top(act) = value;
  Py_DECREF(receiver);
  return Flow::kNext;
}

Flow sendAndDrop(Activation& act, const Instr& instr) {
  const Flow flow = send(act, instr);
  return flow == Flow::kNext && act.pc == instr.target ? endSend(act, instr) : flow;
}

// `yield from`: an exception was thrown into the inner generator and has come back. Stack: [receiver, last
// sent value, exception]. StopIteration carries the inner generator's result: the stack becomes [None,
// result]. Any other exception is raised again.
Flow cleanupThrow(Activation& act, const Instr&) {
  PyObject* exception = top(act);
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration) == 0) {
    pyapi::restoreRaised(exception);
    act.keepTraceback = true;
    return Flow::kRaise;
  }
  PyObject* value = Py_NewRef(pyapi::stopIterationValue(exception));
  for (int i = 0; i < 3; ++i) {
    Py_DECREF(pop(act));
  }
  pushNew(act, Py_None);
  push(act, value);
  return Flow::kNext;
}

// A StopIteration that leaves a generator becomes a RuntimeError. Other exceptions are raised again.
Flow stopIterationError(Activation& act, const Instr&) {
  const int flags = pyapi::flagsOf(pyapi::codeOf(act.frame));
  PyObject* exception = top(act);
  const char* what = (flags & CO_ASYNC_GENERATOR) != 0 ? "async generator"
                     : (flags & CO_COROUTINE) != 0     ? "coroutine"
                                                       : "generator";
  const char* raised = PyErr_GivenExceptionMatches(exception, PyExc_StopIteration) != 0 ? "StopIteration"
                       : (flags & CO_ASYNC_GENERATOR) != 0 &&
                               PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration) != 0
                           ? "StopAsyncIteration"
                           : nullptr;
  if (raised == nullptr) {
    return Flow::kNext;
  }
  PyObject* error =
      PyObject_CallFunction(PyExc_RuntimeError, "N", PyUnicode_FromFormat("%s raised %s", what, raised));
  if (error == nullptr) {
    return Flow::kRaise;
  }
  PyException_SetCause(error, Py_NewRef(exception));
  PyException_SetContext(error, exception);  // takes over the reference
  top(act) = error;
  return Flow::kNext;
}

Flow getYieldFromIter(Activation& act, const Instr&) {
  PyObject* iterable = top(act);
  if (PyGen_CheckExact(iterable)) {
    return Flow::kNext;
  }
  if (PyCoro_CheckExact(iterable)) {
    if ((pyapi::flagsOf(pyapi::codeOf(act.frame)) & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) != 0) {
      return Flow::kNext;
    }
    Py_DECREF(pop(act));
    PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
    return Flow::kRaise;
  }
  auto owned = popRef(act);
  return pushResult(act, PyObject_GetIter(owned.get()));
}

// The argument: 1 after `__aenter__`, 2 after `__aexit__`, 0 for a plain `await`.
Flow getAwaitable(Activation& act, const Instr& instr) {
  auto iterable = popRef(act);
  PyTypeObject* type = Py_TYPE(iterable.get());
  auto iterator = pyapi::steal(pyapi::awaitableIterator(iterable.get()));
  if (!iterator) {
    const bool noAwait = pyapi::awaitFunctionOf(type) == nullptr;
    if (noAwait && (instr.arg == 1 || instr.arg == 2)) {
      PyErr_Format(PyExc_TypeError,
                   "'async with' received an object from %s that does not implement __await__: %.100s",
                   instr.arg == 1 ? "__aenter__" : "__aexit__", pyapi::typeName(type));
    }
    return Flow::kRaise;
  }
  iterable.reset();
  if (PyCoro_CheckExact(iterator.get()) &&
      pyapi::delegatesTo(pyapi::asGenerator(iterator.get())) != nullptr) {
    iterator.reset();
    PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    return Flow::kRaise;
  }
  push(act, iterator.release());
  return Flow::kNext;
}

Flow getAiter(Activation& act, const Instr&) {
  auto object = popRef(act);
  PyTypeObject* type = Py_TYPE(object.get());
  const unaryfunc getter = pyapi::aiterFunctionOf(type);
  if (getter == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an object with __aiter__ method, got %.100s",
                 pyapi::typeName(type));
    return Flow::kRaise;
  }
  auto iterator = pyapi::steal(getter(object.get()));
  object.reset();
  if (!iterator) {
    return Flow::kRaise;
  }
  PyTypeObject* iteratorType = Py_TYPE(iterator.get());
  if (pyapi::anextFunctionOf(iteratorType) == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                 pyapi::typeName(iteratorType));
    return Flow::kRaise;
  }
  push(act, iterator.release());
  return Flow::kNext;
}

Flow getAnext(Activation& act, const Instr&) {
  PyObject* iterator = top(act);
  PyTypeObject* type = Py_TYPE(iterator);
  const unaryfunc getter = pyapi::anextFunctionOf(type);
  if (PyAsyncGen_CheckExact(iterator)) {
    return pushResult(act, getter(iterator));
  }
  if (getter == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an iterator with __anext__ method, got %.100s",
                 pyapi::typeName(type));
    return Flow::kRaise;
  }
  auto next = pyapi::steal(getter(iterator));
  if (!next) {
    return Flow::kRaise;
  }
  PyObject* awaitable = pyapi::awaitableIterator(next.get());
  if (awaitable == nullptr) {
    pyapi::raiseFromPending(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                            pyapi::typeNameOf(next.get()));
  }
  return pushResult(act, awaitable);
}

// Stack: [async iterator, exception]. StopAsyncIteration ends the loop; anything else is raised again.
Flow endAsyncFor(Activation& act, const Instr&) {
  auto value = popRef(act);
  if (PyErr_GivenExceptionMatches(value.get(), PyExc_StopAsyncIteration) != 0) {
    value.reset();
    Py_DECREF(pop(act));
    return Flow::kNext;
  }
  pyapi::restoreRaised(value.get());
  act.keepTraceback = true;
  return Flow::kRaise;
}

Flow asyncGenWrap(Activation& act, const Instr&) {
  auto value = popRef(act);
  return pushResult(act, pyapi::wrapAsyncGenValue(value.get()));
}

}  // namespace kintsugi::capture::handlers
