// TorchSteps: run-time numbers as arguments of torch calls.
//
// While the call runs, each such number is replaced on the real value stack by a symbolic number
// (torchapi/sym_number.h), so that the dispatcher's log says which argument it became. A binding that can't
// take one gets the real number, and the trace is pinned to it. Nobody else sees the symbolic objects.
#include <algorithm>
#include <map>

#include "capture/calls/model.h"
#include "capture/numbers.h"
#include "capture/record_context.h"
#include "capture/sizes.h"
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

// Counts how often each number of the trace occurs in the object, at places where symbolic() looks.
void countNumbers(RecordContext& rec, Shadow shadow, PyObject* object, std::map<ir::ValueId, int>& counts) {
  if (object == nullptr) return;
  shadow = promoted(rec, shadow, object);
  if (shadow.isValue() && isNumber(object)) ++counts[shadow.valueId()];
  if (!shadow.isVirtual() || !hasParts(object)) return;
  for (size_t i = 0; i < rec.objects.virtualOf(shadow).parts.size(); ++i) {
    countNumbers(rec, rec.objects.virtualOf(shadow).parts[i], partOf(object, i), counts);
  }
}

}  // namespace

bool pinHiddenNumbers(CallContext& ctx, std::vector<Shadow>& shadows) {
  std::map<ir::ValueId, int> shown;
  for (size_t n = 1; n <= ctx.popped && n <= ctx.frame.stack.size(); ++n) {
    countNumbers(ctx.rec, ctx.frame.top(static_cast<int>(n)), ctx.act.peek(static_cast<int>(n)), shown);
  }
  std::map<ir::ValueId, int> used;
  for (size_t i = 0; i < shadows.size(); ++i) countNumbers(ctx.rec, shadows[i], ctx.args.any(i), used);
  for (size_t i = 0; i < shadows.size(); ++i) {
    std::map<ir::ValueId, int> here;
    countNumbers(ctx.rec, shadows[i], ctx.args.any(i), here);
    const bool hidden = std::any_of(
        here.begin(), here.end(), [&](const auto& entry) { return used[entry.first] > shown[entry.first]; });
    if (hidden && !ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return false;
  }
  return true;
}

// Like pinDeep(), but numbers stay values.
bool TorchSteps::pinForTorch(Shadow& shadow, PyObject* object) {
  shadow = promoted(rec_, shadow, object);
  if (shadow.isValue() && isNumber(object)) {
    if (document_.trace.values[shadow.valueId()].kind == ir::TypeKind::kObject || isLarge(object))
      return rec_.guards.pinDeep(shadow, object);
    return true;
  }
  if (!shadow.isVirtual() || !hasParts(object)) return rec_.guards.pinDeep(shadow, object);
  for (size_t i = 0; i < rec_.objects.virtualOf(shadow).parts.size(); ++i) {
    Shadow part = rec_.objects.virtualOf(shadow).parts[i];
    if (!part.isNull() && !pinForTorch(part, partOf(object, i))) return false;
    rec_.objects.virtualOf(shadow).parts[i] = part;
  }
  return true;
}

// Returns the object to pass instead of `object`; empty if `object` itself will do.
pyapi::Ref<> TorchSteps::symbolic(Shadow shadow, PyObject* object) {
  if (object != nullptr) shadow = promoted(rec_, shadow, object);
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
  if (!shadow.isVirtual() || !hasParts(object)) return {};
  std::vector<pyapi::Ref<>> parts;
  bool any = false;
  for (size_t i = 0; i < rec_.objects.virtualOf(shadow).parts.size(); ++i) {
    pyapi::Ref<> part = symbolic(rec_.objects.virtualOf(shadow).parts[i], partOf(object, i));
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
  if (number != nullptr && rec_.live()) rec_.guards.guardScalar(value, number);
}

// Executes the instruction with symbolic numbers among its arguments. If the binding refuses them before it
// has called the dispatcher, it is called again with the real numbers.
Flow TorchSteps::executeSymbolic(CallContext& ctx) {
  Activation& act = ctx.act;
  std::vector<pyapi::Ref<>> originals;
  originals.reserve(ctx.popped);
  bool any = false;
  const bool tainted = torchCalls_.isTainted();
  for (size_t n = 1; n <= ctx.popped && n <= ctx.frame.stack.size(); ++n) {
    PyObject*& slot = act.peek(static_cast<int>(n));
    originals.push_back(pyapi::newRef(slot));
    if (slot == nullptr) continue;
    pyapi::Ref<> replaced = symbolic(ctx.frame.top(static_cast<int>(n)), slot);
    if (ctx.hideSliceBounds) {
      pyapi::Ref<> hidden = hideSliceBounds(rec_, replaced ? replaced.get() : slot);
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
  if (!any) return rec_.execute(act, ctx.instr);
  PyObject** sp = act.sp;
  PyObject* kwnames = act.kwnames;
  Flow flow = rec_.execute(act, ctx.instr);
  if (flow == Flow::kNext && ctx.pushes) {  // no symbolic number may be in the result
    PyObject*& pushed = act.peek(ctx.resultDepth);
    if (pyapi::Ref<> plain = torchapi::withoutSymNumbers(pushed)) Py_SETREF(pushed, plain.release());
    PyErr_Clear();
  }
  torchCalls_.clearNumbers();
  // If nothing has been done yet, the call is made again with the real numbers, so that an error message
  // names these.
  if (flow != Flow::kRaise || ops_.hasEffects() || !rec_.live()) return flow;
  ops_.discard();
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
    Shadow shadow = ctx.frame.top(static_cast<int>(n));
    if (act.peek(static_cast<int>(n)) != nullptr &&
        !rec_.guards.pinDeep(shadow, act.peek(static_cast<int>(n))))
      break;
  }
  return rec_.execute(act, ctx.instr);
}

}  // namespace kintsugi::capture
