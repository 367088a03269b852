// Attribute access.
#include "capture/handlers/common.h"
#include "pyapi/functions.h"

namespace kintsugi::capture::handlers {

Flow loadAttr(Activation& act, const Instr& instr) {
  PyObject* owner = top(act);
  pyapi::AttributeCache& cache = act.code->attributeCache(instr);
  PyObject* value = pyapi::cachedAttribute(cache, owner);
  if (value != nullptr) [[likely]] {
    top(act) = Py_NewRef(value);
    Py_DECREF(owner);
    return Flow::kNext;
  }
  PyObject* name = nameArg(act, instr);
  value = PyObject_GetAttr(owner, name);
  if (value != nullptr) {
    pyapi::fillLoadCache(&cache, owner, name);
  }
  act.sp--;
  Py_DECREF(owner);
  return pushResult(act, value);
}

Flow storeAttr(Activation& act, const Instr& instr) {
  PyObject* owner = act.peek(1);
  PyObject* value = act.peek(2);
  pyapi::AttributeCache& cache = act.code->attributeCache(instr);
  int error = 0;
  act.sp -= 2;
  if (!pyapi::storeCachedAttribute(cache, owner, value)) [[unlikely]] {
    PyObject* name = nameArg(act, instr);
    error = PyObject_SetAttr(owner, name, value);
    if (error == 0) {
      pyapi::fillStoreCache(&cache, owner, name);
    }
  }
  Py_DECREF(value);
  Py_DECREF(owner);
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

Flow deleteAttr(Activation& act, const Instr& instr) {
  auto owner = popRef(act);
  return PyObject_SetAttr(owner.get(), nameArg(act, instr), nullptr) == 0 ? Flow::kNext : Flow::kRaise;
}

// Leaves [method, self] for a method that was found on the type. Otherwise leaves the attribute and the null
// that a CALL expects beside it.
Flow loadMethod(Activation& act, const Instr& instr) {
  PyObject* owner = top(act);
  pyapi::AttributeCache& cache = act.code->attributeCache(instr);
  PyObject* method = pyapi::cachedMethod(cache, owner);
  bool unbound = method != nullptr;
  if (!unbound) {
    method = pyapi::cachedAttribute(cache, owner);
  }
  if (method != nullptr) [[likely]] {
    Py_INCREF(method);
  } else {
    PyObject* name = nameArg(act, instr);
    unbound = pyapi::lookUpMethod(owner, name, &method);
    if (method == nullptr) {
      return Flow::kRaise;
    }
    pyapi::fillMethodCache(&cache, owner, name);
  }
  if (unbound) {
    top(act) = method;
    push(act, owner);
    return Flow::kNext;
  }
  top(act) = pyapi::kNullBelowCallable ? nullptr : method;
  push(act, pyapi::kNullBelowCallable ? method : nullptr);
  Py_DECREF(owner);
  return Flow::kNext;
}

// Stack: [super, class, object] becomes [super(class, object)]. A call without arguments finds both by
// itself.
Flow makeSuper(Activation& act, const Instr& instr) {
  PyObject** args = act.sp - 2;
  PyObject* made = PyObject_Vectorcall(args[-1], args, superArgumentCount(instr), nullptr);
  for (int i = 0; i < 3; ++i) {
    Py_DECREF(pop(act));
  }
  return pushResult(act, made);
}

Flow loadSuperAttr(Activation& act, const Instr& instr) {
  const Flow flow = makeSuper(act, instr);
  if (flow != Flow::kNext) {
    return flow;
  }
  const Instr load = attributeOfSuper(instr);
  return load.run(act, load);
}

}  // namespace kintsugi::capture::handlers

namespace kintsugi::capture {

size_t superArgumentCount(const Instr& instr) { return (instr.arg & 2) != 0 ? 2 : 0; }

Instr attributeOfSuper(const Instr& instr) {
  Instr load = instr;
  load.op = (instr.arg & 1) != 0 ? op::LOAD_METHOD : op::LOAD_ATTR;
  load.arg = instr.arg >> 2;
  load.run = handlerOf(load.op);
  return load;
}

}  // namespace kintsugi::capture
