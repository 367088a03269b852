#include "capture/attempt.h"

#include "capture/calls/model.h"
#include "capture/exceptions.h"
#include "capture/recorder.h"
#include "pyapi/errors.h"

namespace kintsugi::capture {

namespace {

PyObject* attempt(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "attempt() needs what to call");
    return nullptr;
  }
  pyapi::Ref<> result =
      pyapi::steal(PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(count - 1), kwnames));
  if (result) return PyTuple_Pack(1, result.get());
  return PyErr_ExceptionMatches(PyExc_Exception) ? pyapi::takeRaised() : nullptr;
}

}  // namespace

PyObject* attemptFunction() {
  static PyMethodDef definition = {"attempt", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(attempt)),
                                   METH_FASTCALL | METH_KEYWORDS, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

// The call of the instruction under way has raised: a step of the trace that is expected to raise again. If
// it does not, or something else, kintsugi._polyfills.settle goes on in its place. False: no exit is possible
// here.
bool Recorder::recordRaised(CallContext& ctx, CallKind kind, std::vector<ir::Operand> operands,
                            ir::StateId snap) {
  using ir::Operand;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  pyapi::Ref<> exception = pyapi::steal(pyapi::takeRaised());  // what follows asks objects, and drops errors
  const auto declined = [&exception] {
    pyapi::restoreRaised(exception.get());
    return false;
  };
  PyObject* settle = polyfill("settle");
  const bool simple = live_ && settle != nullptr && ctx.popped > 0 && canExit(*current_) &&
                      ctx.act.stackDepth() + ctx.popped == current_->stack.size();
  if (!simple) return declined();
  const ir::ReturnAction action = ctx.pushes ? ir::ReturnAction::kPush : ir::ReturnAction::kDiscard;
  const ir::StateId parent = makeState(*current_, ctx.instr.next, ctx.popped, {}, action, Operand::null());
  if (!document_.trace.states[parent].rebuildable) return declined();
  operands.insert(operands.begin(), Operand::constant(constId(attemptFunction())));
  Shadow raised = appendCall(ctx, kind, operands, snap, exception.get());
  guardType(raised, exception.get());
  ir::FrameState state;
  state.parent = parent;
  state.code = constId(PyFunction_GET_CODE(settle));
  state.function = Operand::constant(constId(settle));
  const Operand outcome = Operand::source(raised.sourceId());
  blockPending_ = false;
  emit(ir::Op::kGuardBlock, {Operand::integer(block_)}, {},
       document_.trace.addState(state, {&outcome, 1}, {}));
  noteRaised(*this, exception.get(), true);
  pyapi::restoreRaised(exception.get());
  return true;
}

}  // namespace kintsugi::capture
