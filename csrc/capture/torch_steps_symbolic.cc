// TorchSteps: run-time numbers as arguments of torch calls.
//
// While the call runs, each such number is replaced on the real value stack by a symbolic number
// (torchapi/sym_number.h), so that the dispatcher's log says which argument it became. A binding that can't
// take one gets the real number, and the trace is pinned to it. Nobody else sees the symbolic objects.
#include "capture/torch_steps.h"

#include <algorithm>

#include "pyapi/slices.h"
#include "support/check.h"
#include "support/fault.h"

namespace kintsugi::capture {

namespace {

bool isNumber(PyObject* object) { return PyLong_CheckExact(object) || PyFloat_CheckExact(object); }

// A symbolic number has 64 bits.
bool isLarge(PyObject* object) {
  int overflow = 0;
  return PyLong_CheckExact(object) && PyLong_AsLongLongAndOverflow(object, &overflow) == -1 && overflow != 0;
}

PyObject* partOf(PyObject* object, size_t i) {
  if (PySlice_Check(object)) {
    const pyapi::SliceParts slice = pyapi::partsOfSlice(object);
    return i == 0 ? slice.start : i == 1 ? slice.stop : slice.step;
  }
  return PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
}

bool hasParts(PyObject* object) {
  return PyTuple_Check(object) || PyList_CheckExact(object) || PySlice_Check(object);
}

}  // namespace

// The shadows of what a tuple, list or slice holds, which may hold numbers of the run: one that the trace
// makes, or one that a step has returned. Nothing: it is no such object, or the recording has ended.
std::optional<Shadows> TorchSteps::partsOf(Shadow shadow, PyObject* object) {
  if (object == nullptr || !hasParts(object)) return std::nullopt;
  if (shadow.isVirtual()) return virtuals_[shadow].parts;
  if (!shadow.isSource() || PySlice_Check(object) || !roles_.arguments.comesFromStep(shadow))
    return std::nullopt;
  PyObject** items = PySequence_Fast_ITEMS(object);
  if (!std::any_of(items, items + Py_SIZE(object), isNumber)) return std::nullopt;
  return roles_.sequences.elementsOf(shadow, object);
}

// Counts how often each number of the trace occurs in the object, at places where symbolic() looks.
void TorchSteps::countNumbers(Shadow shadow, PyObject* object, NumberCounts& counts) {
  if (object == nullptr) return;
  shadow = roles_.numbers.promoted(shadow, object);
  if (shadow.isValue() && isNumber(object)) ++counts[shadow.valueId()];
  const std::optional<Shadows> parts = partsOf(shadow, object);
  for (size_t i = 0; parts && i < parts->size(); ++i) countNumbers((*parts)[i], partOf(object, i), counts);
}

// Pins run-time numbers among the arguments that are not on the value stack themselves (**keywords, or
// keywords of a partial), so that no symbolic number can replace them. False: the recording has ended.
bool TorchSteps::pinHiddenNumbers(TorchCall& call, Shadows& shadows) {
  NumberCounts shown;
  for (size_t n = 1; n <= call.popped && n <= call.frame.stack.size(); ++n) {
    countNumbers(call.frame.top(static_cast<int>(n)), call.act.peek(static_cast<int>(n)), shown);
  }
  NumberCounts used;
  for (size_t i = 0; i < shadows.size(); ++i) countNumbers(shadows[i], call.args.any(i), used);
  for (size_t i = 0; i < shadows.size(); ++i) {
    NumberCounts here;
    countNumbers(shadows[i], call.args.any(i), here);
    const bool hidden = std::any_of(
        here.begin(), here.end(), [&](const auto& entry) { return used[entry.first] > shown[entry.first]; });
    if (hidden && !roles_.pins.pinDeep(shadows[i], call.args.any(i))) return false;
  }
  return true;
}

// Like pinDeep(), but numbers stay values.
bool TorchSteps::pinForTorch(Shadow& shadow, PyObject* object) {
  shadow = roles_.numbers.promoted(shadow, object);
  if (shadow.isValue() && isNumber(object)) {
    if (document_.trace.values[shadow.valueId()].kind == ir::TypeKind::kObject || isLarge(object))
      return roles_.pins.pinDeep(shadow, object);
    return true;
  }
  const std::optional<Shadows> parts = partsOf(shadow, object);
  if (!parts) return roles_.breaks.isLive() && roles_.pins.pinDeep(shadow, object);
  for (size_t i = 0; i < parts->size(); ++i) {
    Shadow part = (*parts)[i];
    if (!part.isNull() && !pinForTorch(part, partOf(object, i))) return false;
    if (shadow.isVirtual()) virtuals_[shadow].parts[i] = part;
  }
  return roles_.breaks.isLive();
}

// Returns the object to pass instead of `object`; empty if `object` itself will do.
pyapi::Ref<> TorchSteps::symbolic(Shadow shadow, PyObject* object) {
  if (object != nullptr) shadow = roles_.numbers.promoted(shadow, object);
  if (shadow.isValue() && isNumber(object) && !isLarge(object) && !torchCalls_.isPinned(shadow.valueId())) {
    torchapi::TraceNumber number{shadow.valueId(), document_.trace.values[shadow.valueId()].kind, 0, 0};
    if (number.kind == ir::TypeKind::kInt) {
      number.i = PyLong_AsLongLong(object);
    } else {
      number.f = PyFloat_AsDouble(object);
    }
    torchCalls_.addNumber(shadow.valueId(), object);
    return torchapi::makeSymNumber(*this, number);
  }
  const std::optional<Shadows> shadows = partsOf(shadow, object);
  if (!shadows) return {};
  Refs parts;
  bool any = false;
  for (size_t i = 0; i < shadows->size(); ++i) {
    pyapi::Ref<> part = symbolic((*shadows)[i], partOf(object, i));
    any = any || part;
    parts.push_back(part ? std::move(part) : pyapi::newRef(partOf(object, i)));
  }
  if (!any) return {};
  if (PySlice_Check(object)) {
    return pyapi::steal(PySlice_New(parts[0].get(), parts[1].get(), parts[2].get()));
  }
  const auto size = static_cast<Py_ssize_t>(parts.size());
  pyapi::Ref<> made = pyapi::steal(PyTuple_Check(object) ? PyTuple_New(size) : PyList_New(size));
  for (Py_ssize_t i = 0; made && i < size; ++i) {
    if (PyTuple_Check(object)) {
      PyTuple_SET_ITEM(made.get(), i, parts[static_cast<size_t>(i)].release());
    } else {
      PyList_SET_ITEM(made.get(), i, parts[static_cast<size_t>(i)].release());
    }
  }
  return made;
}

void TorchSteps::pinNumber(ir::ValueId value) {
  PyObject* number = torchCalls_.numberOf(value);
  if (number != nullptr && roles_.breaks.isLive()) roles_.pins.guardAsRead(value, number);
}

// A binding leaves out a slice that takes everything. Returns a key in which it can't see that; null if `key`
// will do.
pyapi::Ref<> TorchSteps::hideSliceBounds(PyObject* key) {
  if (!PyTuple_Check(key)) return {};
  pyapi::Ref<> made = pyapi::steal(PyTuple_New(PyTuple_GET_SIZE(key)));
  for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(key); ++i) {
    PyObject* part = PyTuple_GET_ITEM(key, i);
    pyapi::Ref<> hidden;
    if (PySlice_Check(part)) {
      const pyapi::SliceParts slice = pyapi::partsOfSlice(part);
      auto hide = [this](PyObject* bound) {
        if (!PyLong_CheckExact(bound)) return pyapi::newRef(bound);
        torchapi::TraceNumber number{.i = PyLong_AsLongLong(bound), .hidden = true};
        if (PyErr_Occurred() != nullptr) {
          PyErr_Clear();
          return pyapi::newRef(bound);
        }
        return torchapi::makeSymNumber(*this, number);
      };
      pyapi::Ref<> start = hide(slice.start), stop = hide(slice.stop);
      if (!start || !stop) return {};
      hidden = pyapi::steal(PySlice_New(start.get(), stop.get(), slice.step));
      if (!hidden) return {};
    }
    PyTuple_SET_ITEM(made.get(), i, hidden ? hidden.release() : Py_NewRef(part));
  }
  return made;
}

// Executes the instruction with symbolic numbers among its arguments. If the binding refuses them before it
// has called the dispatcher, it is called again with the real numbers.
Flow TorchSteps::executeSymbolic(TorchCall& call) {
  Activation& act = call.act;
  Refs originals;
  originals.reserve(call.popped);
  bool any = false;
  const bool tainted = torchCalls_.isTainted();
  for (size_t n = 1; n <= call.popped && n <= call.frame.stack.size(); ++n) {
    PyObject*& slot = act.peek(static_cast<int>(n));
    originals.push_back(pyapi::newRef(slot));
    if (slot == nullptr) continue;
    pyapi::Ref<> replaced = symbolic(call.frame.top(static_cast<int>(n)), slot);
    if (call.hideSliceBounds) {
      pyapi::Ref<> hidden = hideSliceBounds(replaced ? replaced.get() : slot);
      if (hidden) replaced = std::move(hidden);
    }
    if (PyErr_Occurred()) PyErr_Clear();
    if (!replaced) continue;
    any = true;
    Py_SETREF(slot, replaced.release());
  }
  // Making symbolic numbers may run Python code of torch. That is not the binding's doing, so it does not
  // taint the call.
  torchCalls_.setTainted(tainted);
  if (!any) return execute(call);
  PyObject** sp = act.sp;
  PyObject* kwnames = act.kwnames;
  Flow flow = execute(call);
  if (flow == Flow::kNext && call.pushes) {  // no symbolic number may be in the result
    PyObject*& pushed = act.peek(call.resultDepth);
    if (pyapi::Ref<> plain = torchapi::withoutSymNumbers(pushed)) Py_SETREF(pushed, plain.release());
    PyErr_Clear();
  }
  torchCalls_.clearNumbers();
  // If nothing has been done yet, the call is made again with the real numbers, so that an error message
  // names these.
  if (flow != Flow::kRaise || log_.hasEffects() || !roles_.breaks.isLive()) return flow;
  log_.discard();
  PyErr_Clear();
  KINTSUGI_CHECK(act.sp <= sp, "an instruction that raised has pushed");
  KINTSUGI_CHECK(static_cast<size_t>(sp - act.sp) <= originals.size(),
                 "an instruction popped more than it said");
  while (act.sp < sp) *act.sp++ = nullptr;
  for (size_t n = 1; n <= originals.size(); ++n) {
    Py_XSETREF(act.peek(static_cast<int>(n)), originals[n - 1].release());
  }
  act.kwnames = kwnames;
  instruction_.setExecuted(false);  // the stack is as before the instruction
  faultPoint("again");
  for (size_t n = 1; n <= originals.size(); ++n) {
    Shadow shadow = call.frame.top(static_cast<int>(n));
    if (act.peek(static_cast<int>(n)) != nullptr &&
        !roles_.pins.pinDeep(shadow, act.peek(static_cast<int>(n))))
      break;
  }
  return execute(call);
}

}  // namespace kintsugi::capture
