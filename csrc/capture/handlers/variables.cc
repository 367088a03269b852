// Locals, cells, globals and names.
#include <utility>

#include "capture/handlers/common.h"
#include "pyapi/code.h"
#include "pyapi/dict.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"

namespace kintsugi::capture::handlers {

namespace {

Flow raiseUnboundAt(const Activation& act, uint32_t index) {
  pyapi::raiseUnbound(pyapi::codeOf(act.frame), index);
  return Flow::kRaise;
}

Flow raiseName(PyObject* name) {
  pyapi::raiseForName(PyExc_NameError, pyapi::kNameErrorMessage, name);
  return Flow::kRaise;
}

// Looks `name` up in any mapping; `*value` is a new reference or null when there is no such key. False: an
// exception.
bool lookUp(PyObject* mapping, PyObject* name, PyObject** value) {
  if (PyDict_CheckExact(mapping)) {
    *value = Py_XNewRef(PyDict_GetItemWithError(mapping, name));
    return *value != nullptr || PyErr_Occurred() == nullptr;
  }
  *value = PyObject_GetItem(mapping, name);
  if (*value == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_KeyError) == 0) {
      return false;
    }
    PyErr_Clear();
  }
  return true;
}

// Pushes the entry of `mapping`. If there is none, `otherwise` is called, which is like a handler.
template <typename Otherwise>
Flow loadFrom(Activation& act, PyObject* mapping, PyObject* name, const Otherwise& otherwise) {
  PyObject* value = nullptr;
  if (!lookUp(mapping, name, &value)) {
    return Flow::kRaise;
  }
  if (value == nullptr) {
    return otherwise();
  }
  push(act, value);
  return Flow::kNext;
}

// For exec() with globals or builtins that are not exact dicts.
Flow loadGlobalSlow(Activation& act, PyObject* name) {
  return loadFrom(act, pyapi::globalsOf(act.frame), name, [&] {
    return loadFrom(act, pyapi::builtinsOf(act.frame), name, [&] { return raiseName(name); });
  });
}

// Pushes what LOAD_GLOBAL loads, without the null beside it.
Flow loadGlobalValue(Activation& act, const Instr& instr) {
  PyObject* globals = pyapi::globalsOf(act.frame);
  PyObject* builtins = pyapi::builtinsOf(act.frame);
  PyObject* name = pyapi::nameAt(pyapi::codeOf(act.frame), instr.arg >> 1);
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) [[unlikely]] {
    return loadGlobalSlow(act, name);
  }
  GlobalCache& cache = act.code->globalCache(instr);
  if (cache.globalsVersion == pyapi::dictVersion(globals) &&
      cache.builtinsVersion == pyapi::dictVersion(builtins)) [[likely]] {
    pushNew(act, cache.value);
    return Flow::kNext;
  }
  const GlobalCache before{pyapi::dictVersion(globals), pyapi::dictVersion(builtins), nullptr};
  PyObject* value = pyapi::dictGet(globals, name);
  if (value == nullptr && PyErr_Occurred() == nullptr) {
    value = pyapi::dictGet(builtins, name);
  }
  if (value == nullptr) {
    return PyErr_Occurred() != nullptr ? Flow::kRaise : raiseName(name);
  }
  pushNew(act, value);
  // A key that is not a str may have run code during the look-up, which may have changed the dicts.
  if (pyapi::dictVersion(globals) == before.globalsVersion &&
      pyapi::dictVersion(builtins) == before.builtinsVersion) {
    cache = GlobalCache{before.globalsVersion, before.builtinsVersion, value};
  }
  return Flow::kNext;
}

Flow raiseNoLocals(const char* format, PyObject* name) {
  PyErr_Format(PyExc_SystemError, format, name);
  return Flow::kRaise;
}

Flow loadFastAt(Activation& act, uint32_t index) {
  PyObject* value = act.local(index);
  if (value == nullptr) [[unlikely]] {
    return raiseUnboundAt(act, index);
  }
  pushNew(act, value);
  return Flow::kNext;
}

}  // namespace

Flow loadFast(Activation& act, const Instr& instr) { return loadFastAt(act, instr.arg); }

Flow storeFast(Activation& act, const Instr& instr) {
  setLocal(act, instr.arg, pop(act));
  return Flow::kNext;
}

// Two loads in one: the upper bits are the index of the first variable, the lower four bits that of the
// second.
Flow loadFastLoadFast(Activation& act, const Instr& instr) {
  const Flow flow = loadFastAt(act, instr.arg >> 4);
  return flow == Flow::kNext ? loadFastAt(act, instr.arg & 15) : flow;
}

Flow storeFastLoadFast(Activation& act, const Instr& instr) {
  setLocal(act, instr.arg >> 4, pop(act));
  return loadFastAt(act, instr.arg & 15);
}

Flow storeFastStoreFast(Activation& act, const Instr& instr) {
  setLocal(act, instr.arg >> 4, pop(act));
  setLocal(act, instr.arg & 15, pop(act));
  return Flow::kNext;
}

Flow deleteFast(Activation& act, const Instr& instr) {
  if (act.local(instr.arg) == nullptr) {
    return raiseUnboundAt(act, instr.arg);
  }
  setLocal(act, instr.arg, nullptr);
  return Flow::kNext;
}

// An inlined comprehension begins with this. The variable may be unbound.
Flow loadFastAndClear(Activation& act, const Instr& instr) {
  push(act, pyapi::exchangeLocal(act.frame, static_cast<int>(instr.arg), nullptr));
  return Flow::kNext;
}

// Loads the cell itself, for a closure tuple.
Flow loadClosure(Activation& act, const Instr& instr) { return loadFast(act, instr); }

Flow makeCell(Activation& act, const Instr& instr) {
  PyObject* cell = PyCell_New(act.local(instr.arg));
  if (cell == nullptr) {
    return Flow::kRaise;
  }
  setLocal(act, instr.arg, cell);
  return Flow::kNext;
}

Flow copyFreeVars(Activation& act, const Instr& instr) {
  PyCodeObject* code = pyapi::codeOf(act.frame);
  PyObject* closure = pyapi::closureOf(pyapi::functionOf(act.frame));
  const int first = pyapi::firstFreeVariable(code);
  for (int i = 0; i < static_cast<int>(instr.arg); i++) {
    pyapi::exchangeLocal(act.frame, first + i, Py_NewRef(PyTuple_GET_ITEM(closure, i)));
  }
  return Flow::kNext;
}

Flow loadDeref(Activation& act, const Instr& instr) {
  PyObject* value = PyCell_GET(act.local(instr.arg));
  if (value == nullptr) {
    return raiseUnboundAt(act, instr.arg);
  }
  pushNew(act, value);
  return Flow::kNext;
}

Flow storeDeref(Activation& act, const Instr& instr) {
  PyObject* cell = act.local(instr.arg);
  PyObject* old = PyCell_GET(cell);
  PyCell_SET(cell, pop(act));
  Py_XDECREF(old);
  return Flow::kNext;
}

Flow deleteDeref(Activation& act, const Instr& instr) {
  PyObject* cell = act.local(instr.arg);
  PyObject* old = PyCell_GET(cell);
  if (old == nullptr) {
    return raiseUnboundAt(act, instr.arg);
  }
  PyCell_SET(cell, nullptr);
  Py_DECREF(old);
  return Flow::kNext;
}

// A free variable in a class body: the class's namespace is asked first.
Flow loadClassDeref(Activation& act, const Instr& instr) {
  PyObject* name = pyapi::variableName(pyapi::codeOf(act.frame), instr.arg);
  return loadFrom(act, pyapi::localsDictOf(act.frame), name, [&] { return loadDeref(act, instr); });
}

// Loads the namespace of a class body.
Flow loadLocals(Activation& act, const Instr&) {
  PyObject* locals = pyapi::localsDictOf(act.frame);
  if (locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals");
    return Flow::kRaise;
  }
  pushNew(act, locals);
  return Flow::kNext;
}

// Like LOAD_CLASSDEREF, with the namespace on the stack.
Flow loadFromDictOrDeref(Activation& act, const Instr& instr) {
  auto space = popRef(act);
  PyObject* name = pyapi::variableName(pyapi::codeOf(act.frame), instr.arg);
  return loadFrom(act, space.get(), name, [&] { return loadDeref(act, instr); });
}

Flow loadFromDictOrGlobals(Activation& act, const Instr& instr) {
  auto space = popRef(act);
  PyObject* name = nameArg(act, instr);
  return loadFrom(act, space.get(), name, [&] { return loadGlobalSlow(act, name); });
}

Flow loadGlobal(Activation& act, const Instr& instr) {
  // Bit 0 asks for the null that a CALL expects beside a plain callable.
  const bool withNull = (instr.arg & 1) != 0;
  if (withNull && pyapi::kNullBelowCallable) {
    push(act, nullptr);
  }
  const Flow flow = loadGlobalValue(act, instr);
  if (withNull && !pyapi::kNullBelowCallable && flow == Flow::kNext) {
    push(act, nullptr);
  }
  return flow;
}

Flow storeGlobal(Activation& act, const Instr& instr) {
  auto value = popRef(act);
  const int error = PyDict_SetItem(pyapi::globalsOf(act.frame), nameArg(act, instr), value.get());
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

Flow deleteGlobal(Activation& act, const Instr& instr) {
  PyObject* name = nameArg(act, instr);
  if (PyDict_DelItem(pyapi::globalsOf(act.frame), name) == 0) {
    return Flow::kNext;
  }
  return PyErr_ExceptionMatches(PyExc_KeyError) != 0 ? raiseName(name) : Flow::kRaise;
}

Flow loadName(Activation& act, const Instr& instr) {
  PyObject* name = nameArg(act, instr);
  PyObject* locals = pyapi::localsDictOf(act.frame);
  if (locals == nullptr) {
    return raiseNoLocals("no locals when loading %R", name);
  }
  PyObject* value = nullptr;
  if (!lookUp(locals, name, &value)) {
    return Flow::kRaise;
  }
  if (value == nullptr) {
    value = Py_XNewRef(PyDict_GetItemWithError(pyapi::globalsOf(act.frame), name));
    if (value == nullptr &&
        (PyErr_Occurred() != nullptr || !lookUp(pyapi::builtinsOf(act.frame), name, &value))) {
      return Flow::kRaise;
    }
  }
  if (value == nullptr) {
    return raiseName(name);
  }
  push(act, value);
  return Flow::kNext;
}

Flow storeName(Activation& act, const Instr& instr) {
  PyObject* name = nameArg(act, instr);
  PyObject* locals = pyapi::localsDictOf(act.frame);
  auto value = popRef(act);
  if (locals == nullptr) {
    return raiseNoLocals("no locals found when storing %R", name);
  }
  const int error = PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value.get())
                                              : PyObject_SetItem(locals, name, value.get());
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

Flow deleteName(Activation& act, const Instr& instr) {
  PyObject* name = nameArg(act, instr);
  PyObject* locals = pyapi::localsDictOf(act.frame);
  if (locals == nullptr) {
    return raiseNoLocals("no locals when deleting %R", name);
  }
  return PyObject_DelItem(locals, name) == 0 ? Flow::kNext : raiseName(name);
}

}  // namespace kintsugi::capture::handlers

namespace kintsugi::capture {

bool hasHalves(const Instr& instr) {
  return instr.op == op::LOAD_FAST_LOAD_FAST || instr.op == op::STORE_FAST_LOAD_FAST ||
         instr.op == op::STORE_FAST_STORE_FAST;
}

std::array<Instr, 2> halvesOf(const Instr& instr) {
  std::array<Instr, 2> halves = {instr, instr};
  halves[0].op = instr.op == op::LOAD_FAST_LOAD_FAST ? op::LOAD_FAST : op::STORE_FAST;
  halves[1].op = instr.op == op::STORE_FAST_STORE_FAST ? op::STORE_FAST : op::LOAD_FAST;
  halves[0].arg = instr.arg >> 4;
  halves[1].arg = instr.arg & 15;
  for (Instr& half : halves) half.run = handlerOf(half.op);
  return halves;
}

}  // namespace kintsugi::capture
