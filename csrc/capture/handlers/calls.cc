// Calls and function objects.
//
// A call of a Python function goes through the function's vectorcall. That pushes a frame and evaluates it
// through the frame hook, so the callee comes back to the interpreter.
#include "capture/handlers/common.h"
#include "pyapi/containers.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/keyword_errors.h"
#include "pyapi/names.h"
#include "pyapi/object_layout.h"
#include "pyapi/order.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

// The depth of the callable in a call without arguments.
constexpr int kCallableDepth = pyapi::kNullBelowCallable ? 1 : 2;

// Sets the error that `f(**x)` raises when `x` is no mapping or repeats a keyword, in place of
// mergeUnique()'s.
void rewordKeywordsError(PyObject* function, PyObject* keywords) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
    PyErr_Clear();
    auto name = pyapi::steal(pyapi::callableText(function));
    if (name) {
      PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", name.get(),
                   pyapi::typeNameOf(keywords));
    }
    return;
  }
  if (PyErr_ExceptionMatches(PyExc_KeyError) == 0 || !pyapi::rewordsRepeatedKeyword()) {
    return;
  }
  auto raised = pyapi::steal(pyapi::takeRaised());
  PyObject* args = pyapi::partsOf(raised.get()).args;
  if (args == nullptr || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) != 1) {
    pyapi::restoreRaised(raised.get());
    return;
  }
  auto name = pyapi::steal(pyapi::callableText(function));
  if (name) {
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", name.get(),
                 PyTuple_GET_ITEM(args, 0));
  }
}

// The `*args` of a call as a tuple; empty with an exception pending.
pyapi::Ref<> positionalTuple(PyObject* function, pyapi::Ref<> args) {
  if (PyTuple_CheckExact(args.get())) {
    return args;
  }
  if (!pyapi::isIterable(args.get()) && PySequence_Check(args.get()) == 0) {
    PyErr_Clear();  // the function's name is asked for below
    auto name = pyapi::steal(pyapi::callableText(function));
    if (name) {
      PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", name.get(),
                   pyapi::typeNameOf(args.get()));
    }
    return nullptr;
  }
  return pyapi::steal(PySequence_Tuple(args.get()));
}

// The `**kwargs` of a call as a dict; empty with an exception pending.
pyapi::Ref<> keywordDict(PyObject* function, pyapi::Ref<> keywords) {
  if (PyDict_CheckExact(keywords.get())) {
    return keywords;
  }
  auto dict = pyapi::steal(PyDict_New());
  if (dict && pyapi::mergeUnique(dict.get(), keywords.get()) < 0) {
    rewordKeywordsError(function, keywords.get());
    return nullptr;
  }
  return dict;
}

// The part that belongs to a bit of MAKE_FUNCTION's argument, or to the argument of SET_FUNCTION_ATTRIBUTE.
pyapi::Ref<>& partOf(pyapi::FunctionParts& parts, uint32_t bit) {
  switch (bit) {
    case 16:
      return parts.annotate;
    case 8:
      return parts.closure;
    case 4:
      return parts.annotations;
    case 2:
      return parts.keywordDefaults;
    default:
      return parts.defaults;
  }
}

}  // namespace

// CPython unpacks bound methods here. We do so in CALL instead. A snapshot resumes at the KW_NAMES or PRECALL
// that begins the call, so the stack before the call must not depend on whether PRECALL has run.
Flow precall(Activation&, const Instr&) { return Flow::kNext; }

Flow kwNames(Activation& act, const Instr& instr) {
  act.kwnames = constArg(act, instr);
  return Flow::kNext;
}

namespace {

// Makes the call whose callable and `count` arguments are on the stack below `end`, and replaces them by the
// result.
Flow callBelow(Activation& act, PyObject** end, Py_ssize_t count, PyObject* kwnames) {
  PyObject** args = end - count;
  if (!pyapi::kNullBelowCallable && args[-1] == nullptr) {
    std::swap(args[-1], args[-2]);
  }
  if (args[-2] == nullptr && Py_IS_TYPE(args[-1], &PyMethod_Type)) {
    PyObject* bound = args[-1];
    args[-2] = Py_NewRef(PyMethod_GET_FUNCTION(bound));
    args[-1] = Py_NewRef(PyMethod_GET_SELF(bound));
    Py_DECREF(bound);
  }
  const bool isMethod = args[-2] != nullptr;
  if (isMethod) {
    args--;
    count++;
  }
  PyObject* function = args[-1];
  const Py_ssize_t positional = count - (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  PyObject* result = PyObject_Vectorcall(
      function, args, static_cast<size_t>(positional) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  // An observer may have handed an argument over to the callee's frame.
  if (pyapi::dropsLastFirst()) {
    for (Py_ssize_t i = count; i-- > 0;) Py_XDECREF(args[i]);
    Py_DECREF(function);
  } else {
    Py_DECREF(function);
    for (Py_ssize_t i = 0; i < count; i++) Py_XDECREF(args[i]);
  }
  act.sp = isMethod ? args - 1 : args - 2;
  if (result == nullptr) {
    return Flow::kRaise;
  }
  push(act, result);
  return checkEvalBreaker(act);
}

}  // namespace

// Stack: [method, self, arg...], or a callable and a null (in the order of the version), then [arg...].
Flow call(Activation& act, const Instr& instr) {
  return callBelow(act, act.sp, instr.arg, std::exchange(act.kwnames, nullptr));
}

// The names of the keywords are on top, as a tuple. They stay on the stack during the call, because somebody
// may look at the stack then.
Flow callKw(Activation& act, const Instr& instr) {
  const auto names = pyapi::steal(top(act));
  return callBelow(act, act.sp - 1, instr.arg, names.get());
}

// Stack: a callable and a null, then [args], or [args, kwargs] if bit 0 is set.
Flow callFunctionEx(Activation& act, const Instr& instr) {
  pyapi::Ref<> keywords;
  if ((instr.arg & 1) != 0) {
    keywords = popRef(act);  // since CPython 3.14, null if the call has none
    if (keywords) {
      keywords = keywordDict(act.peek(kCallableDepth + 1), std::move(keywords));
      if (!keywords) {
        return Flow::kRaise;
      }
    }
  }
  auto args = popRef(act);
  args = positionalTuple(act.peek(kCallableDepth), std::move(args));
  if (!args) {
    return Flow::kRaise;
  }
  if (!pyapi::kNullBelowCallable) {
    std::swap(top(act), second(act));
  }
  auto function = popRef(act);
  PyObject* result = PyObject_Call(function.get(), args.get(), keywords.get());
  function.reset();
  args.reset();
  keywords.reset();
  top(act) = result;  // replaces the null below; null if the call has raised
  return result == nullptr ? Flow::kRaise : checkEvalBreaker(act);
}

// Adds a call's `**kwargs` to the dict that is being built. A keyword that is there already is an error.
Flow dictMerge(Activation& act, const Instr& instr) {
  auto update = popRef(act);
  const auto depth = static_cast<int>(instr.arg);
  if (pyapi::mergeUnique(act.peek(depth), update.get()) < 0) {
    rewordKeywordsError(act.peek(depth + 1 + kCallableDepth), update.get());
    return Flow::kRaise;
  }
  return Flow::kNext;
}

Flow makeFunction(Activation& act, const Instr& instr) {
  auto code = popRef(act);
  PyObject* object = PyFunction_New(code.get(), pyapi::globalsOf(act.frame));
  if (object == nullptr) {
    return Flow::kRaise;
  }
  pyapi::FunctionParts parts;
  for (const uint32_t bit : {8u, 4u, 2u, 1u}) {
    if ((instr.arg & bit) != 0) {
      partOf(parts, bit) = popRef(act);
    }
  }
  pyapi::fillNewFunction(pyapi::asFunction(object), std::move(parts));
  push(act, object);
  return Flow::kNext;
}

// The argument is the bit that MAKE_FUNCTION uses for the same part. Stack: [value, function].
Flow setFunctionAttribute(Activation& act, const Instr& instr) {
  PyObject* function = pop(act);
  pyapi::FunctionParts parts;
  partOf(parts, instr.arg) = popRef(act);
  pyapi::fillNewFunction(pyapi::asFunction(function), std::move(parts));
  push(act, function);
  return Flow::kNext;
}

Flow loadBuildClass(Activation& act, const Instr&) {
  PyObject* builtins = pyapi::builtinsOf(act.frame);
  PyObject* name = pyapi::names::buildClass();
  PyObject* builder = nullptr;
  if (PyDict_CheckExact(builtins)) {
    builder = Py_XNewRef(PyDict_GetItemWithError(builtins, name));
    if (builder == nullptr && PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_NameError, "__build_class__ not found");
    }
  } else {
    builder = PyObject_GetItem(builtins, name);
    if (builder == nullptr && PyErr_ExceptionMatches(PyExc_KeyError) != 0) {
      PyErr_SetString(PyExc_NameError, "__build_class__ not found");
    }
  }
  return pushResult(act, builder);
}

}  // namespace kintsugi::capture::handlers
