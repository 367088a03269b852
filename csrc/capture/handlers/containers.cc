// Building and unpacking tuples, lists, sets, dicts, slices and strings.
#include "pyapi/containers.h"
#include "capture/handlers/common.h"
#include "pyapi/intrinsics.h"
#include "pyapi/types.h"

namespace kintsugi::capture::handlers {

namespace {

void dropStack(Activation& act, uint32_t count) {
  PyObject** newTop = act.sp - count;
  while (act.sp > newTop) {
    Py_DECREF(pop(act));
  }
}

Flow raiseTooFew(int expected, bool atLeast, Py_ssize_t got) {
  const char* format = atLeast ? "not enough values to unpack (expected at least %d, got %zd)"
                               : "not enough values to unpack (expected %d, got %zd)";
  PyErr_Format(PyExc_ValueError, format, expected, got);
  return Flow::kRaise;
}

// Takes `before` items from the iterator; each goes below the last one on the stack. `after` is -1 if there
// is no starred target. After kRaise, the caller has to drop `*taken` items.
Flow unpackHead(PyObject* iterator, PyObject** end, int before, int after, int* taken) {
  while (*taken < before) {
    PyObject* item = PyIter_Next(iterator);
    if (item == nullptr) {
      if (PyErr_Occurred() != nullptr) {
        return Flow::kRaise;
      }
      return raiseTooFew(after < 0 ? before : before + after, after >= 0, *taken);
    }
    *taken += 1;
    end[-*taken] = item;
  }
  return Flow::kNext;
}

// Puts the rest of the iterator into the next slot, as a list, and then the last `after` items of that list.
Flow unpackTail(PyObject* iterator, PyObject** end, int before, int after, int* taken) {
  PyObject* rest = PySequence_List(iterator);
  if (rest == nullptr) {
    return Flow::kRaise;
  }
  *taken += 1;
  end[-*taken] = rest;
  const Py_ssize_t size = PyList_GET_SIZE(rest);
  if (size < after) {
    return raiseTooFew(before + after, true, before + size);
  }
  for (Py_ssize_t i = size - after; i < size; i++) {
    *taken += 1;
    end[-*taken] = PyList_GET_ITEM(rest, i);
  }
  Py_SET_SIZE(rest, size - after);  // their references moved to the stack
  return Flow::kNext;
}

Flow expectExhausted(PyObject* source, PyObject* iterator, int expected) {
  auto surplus = pyapi::steal(PyIter_Next(iterator));
  if (!surplus) {
    return PyErr_Occurred() != nullptr ? Flow::kRaise : Flow::kNext;
  }
  surplus.reset();
  const bool sized = PyList_CheckExact(source) || PyTuple_CheckExact(source) || PyDict_CheckExact(source);
  const Py_ssize_t size = pyapi::kTellsSizes && sized ? PyObject_Size(source) : -1;
  if (size > expected) {
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d, got %zd)", expected, size);
  } else {
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", expected);
  }
  return Flow::kRaise;
}

// Unpacks the items onto the stack, with the first item on top.
Flow unpackIterable(Activation& act, PyObject* source, int before, int after) {
  auto iterator = pyapi::steal(PyObject_GetIter(source));
  if (!iterator) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) != 0 && !pyapi::isIterable(source) &&
        PySequence_Check(source) == 0) {
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", pyapi::typeNameOf(source));
    }
    return Flow::kRaise;
  }
  const int total = after < 0 ? before : before + 1 + after;
  PyObject** end = act.sp + total;
  int taken = 0;
  Flow flow = unpackHead(iterator.get(), end, before, after, &taken);
  if (flow == Flow::kNext) {
    flow = after < 0 ? expectExhausted(source, iterator.get(), before)
                     : unpackTail(iterator.get(), end, before, after, &taken);
  }
  if (flow == Flow::kNext) {
    act.sp = end;
    return flow;
  }
  for (; taken > 0; taken--) {
    Py_DECREF(end[-taken]);
  }
  return flow;
}

// Applies `!s`, `!r` or `!a` of a formatted value, given by its number. Returns a new reference.
PyObject* converted(PyObject* value, uint32_t conversion) {
  switch (conversion) {
    case 1:
      return PyObject_Str(value);
    case 2:
      return PyObject_Repr(value);
    case 3:
      return PyObject_ASCII(value);
    default:
      return Py_NewRef(value);
  }
}

}  // namespace

Flow buildTuple(Activation& act, const Instr& instr) {
  PyObject* tuple = PyTuple_New(instr.arg);
  if (tuple == nullptr) {
    return Flow::kRaise;
  }
  act.sp -= instr.arg;
  for (uint32_t i = 0; i < instr.arg; i++) {
    PyTuple_SET_ITEM(tuple, i, act.sp[i]);
  }
  push(act, tuple);
  return Flow::kNext;
}

Flow buildList(Activation& act, const Instr& instr) {
  PyObject* list = PyList_New(instr.arg);
  if (list == nullptr) {
    return Flow::kRaise;
  }
  act.sp -= instr.arg;
  for (uint32_t i = 0; i < instr.arg; i++) {
    PyList_SET_ITEM(list, i, act.sp[i]);
  }
  push(act, list);
  return Flow::kNext;
}

Flow buildSet(Activation& act, const Instr& instr) {
  auto set = pyapi::steal(PySet_New(nullptr));
  if (!set) {
    return Flow::kRaise;
  }
  for (int i = static_cast<int>(instr.arg); i > 0; i--) {
    if (PySet_Add(set.get(), act.peek(i)) < 0) {
      return Flow::kRaise;
    }
  }
  dropStack(act, instr.arg);
  push(act, set.release());
  return Flow::kNext;
}

Flow buildMap(Activation& act, const Instr& instr) {
  auto dict = pyapi::steal(pyapi::newDict(instr.arg));
  if (!dict) {
    return Flow::kRaise;
  }
  for (int i = static_cast<int>(instr.arg); i > 0; i--) {
    if (PyDict_SetItem(dict.get(), act.peek(2 * i), act.peek(2 * i - 1)) < 0) {
      return Flow::kRaise;
    }
  }
  dropStack(act, 2 * instr.arg);
  push(act, dict.release());
  return Flow::kNext;
}

Flow buildConstKeyMap(Activation& act, const Instr& instr) {
  PyObject* keys = top(act);
  if (!PyTuple_CheckExact(keys) || PyTuple_GET_SIZE(keys) != static_cast<Py_ssize_t>(instr.arg)) {
    PyErr_SetString(PyExc_SystemError, "bad BUILD_CONST_KEY_MAP keys argument");
    return Flow::kRaise;
  }
  auto dict = pyapi::steal(pyapi::newDict(instr.arg));
  if (!dict) {
    return Flow::kRaise;
  }
  for (uint32_t i = 0; i < instr.arg; i++) {
    PyObject* value = act.peek(static_cast<int>(instr.arg - i) + 1);
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(keys, i), value) < 0) {
      return Flow::kRaise;
    }
  }
  dropStack(act, instr.arg + 1);
  push(act, dict.release());
  return Flow::kNext;
}

Flow buildString(Activation& act, const Instr& instr) {
  auto empty = pyapi::steal(PyUnicode_New(0, 0));
  PyObject* joined = empty ? pyapi::joinTexts(empty.get(), act.sp - instr.arg, instr.arg) : nullptr;
  if (joined == nullptr) {
    return Flow::kRaise;
  }
  dropStack(act, instr.arg);
  push(act, joined);
  return Flow::kNext;
}

Flow buildSlice(Activation& act, const Instr& instr) {
  pyapi::Ref<> step;
  if (instr.arg == 3) {
    step = popRef(act);
  }
  auto stop = popRef(act);
  auto start = popRef(act);
  return pushResult(act, PySlice_New(start.get(), stop.get(), step.get()));
}

Flow convertValue(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  return pushResult(act, converted(value.get(), instr.arg));
}

Flow formatValue(Activation& act, const Instr& instr) {
  pyapi::Ref<> spec;
  if ((instr.arg & 4) != 0) {
    spec = popRef(act);
  }
  auto value = popRef(act);
  value = pyapi::steal(converted(value.get(), instr.arg & 3));
  if (!value) {
    return Flow::kRaise;
  }
  // A plain string without a format specification is its own format().
  if (spec || !PyUnicode_CheckExact(value.get())) {
    value = pyapi::steal(PyObject_Format(value.get(), spec.get()));
  }
  return pushResult(act, value.release());
}

// `{value!r:spec}` of a template string. Stack: [value, its text], and the specification if bit 0 is set; the
// other bits are the conversion. The parts become an Interpolation object.
Flow buildInterpolation(Activation& act, const Instr& instr) {
  pyapi::Ref<> spec;
  if ((instr.arg & 1) != 0) {
    spec = popRef(act);
  }
  auto text = popRef(act);
  auto value = popRef(act);
  return pushResult(
      act, pyapi::newInterpolation(value.get(), text.get(), static_cast<int>(instr.arg >> 2), spec.get()));
}

Flow buildTemplate(Activation& act, const Instr&) {
  auto interpolations = popRef(act);
  auto strings = popRef(act);
  return pushResult(act, pyapi::newTemplate(strings.get(), interpolations.get()));
}

Flow listAppend(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  return PyList_Append(act.peek(static_cast<int>(instr.arg)), value.get()) == 0 ? Flow::kNext : Flow::kRaise;
}

Flow setAdd(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  return PySet_Add(act.peek(static_cast<int>(instr.arg)), value.get()) == 0 ? Flow::kNext : Flow::kRaise;
}

Flow mapAdd(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  auto key = popRef(act);
  PyObject* dict = act.peek(static_cast<int>(instr.arg));
  return PyDict_SetItem(dict, key.get(), value.get()) == 0 ? Flow::kNext : Flow::kRaise;
}

Flow listExtend(Activation& act, const Instr& instr) {
  auto iterable = popRef(act);
  PyObject* list = act.peek(static_cast<int>(instr.arg));
  auto none = pyapi::steal(pyapi::extendList(list, iterable.get()));
  if (none) {
    return Flow::kNext;
  }
  PyTypeObject* type = Py_TYPE(iterable.get());
  if (PyErr_ExceptionMatches(PyExc_TypeError) != 0 && !pyapi::isIterable(iterable.get()) &&
      PySequence_Check(iterable.get()) == 0) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", pyapi::typeName(type));
  }
  return Flow::kRaise;
}

Flow setUpdate(Activation& act, const Instr& instr) {
  auto iterable = popRef(act);
  return pyapi::updateSet(act.peek(static_cast<int>(instr.arg)), iterable.get()) >= 0 ? Flow::kNext
                                                                                      : Flow::kRaise;
}

Flow dictUpdate(Activation& act, const Instr& instr) {
  auto update = popRef(act);
  if (PyDict_Update(act.peek(static_cast<int>(instr.arg)), update.get()) >= 0) {
    return Flow::kNext;
  }
  if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", pyapi::typeNameOf(update.get()));
  }
  return Flow::kRaise;
}

Flow listToTuple(Activation& act, const Instr&) {
  auto list = popRef(act);
  return pushResult(act, PyList_AsTuple(list.get()));
}

Flow unpackSequence(Activation& act, const Instr& instr) {
  auto source = popRef(act);
  const auto count = static_cast<Py_ssize_t>(instr.arg);
  const bool isTuple = PyTuple_CheckExact(source.get()) && PyTuple_GET_SIZE(source.get()) == count;
  const bool isList = !isTuple && PyList_CheckExact(source.get()) && PyList_GET_SIZE(source.get()) == count;
  if (!isTuple && !isList) {
    return unpackIterable(act, source.get(), static_cast<int>(instr.arg), -1);
  }
  PyObject** items = PySequence_Fast_ITEMS(source.get());
  for (Py_ssize_t i = count; i-- > 0;) {
    pushNew(act, items[i]);
  }
  return Flow::kNext;
}

Flow unpackEx(Activation& act, const Instr& instr) {
  auto source = popRef(act);
  return unpackIterable(act, source.get(), static_cast<int>(instr.arg & 0xFF),
                        static_cast<int>(instr.arg >> 8));
}

}  // namespace kintsugi::capture::handlers
