// Steps: calls that have raised.
#include "capture/attempt.h"
#include "capture/finalized_objects.h"
#include "capture/makers.h"
#include "capture/steps.h"
#include "pyapi/errors.h"
#include "pyapi/types.h"
#include "support/fault.h"

namespace kintsugi::capture {

namespace {

// Takes the pending exception as one object, and makes it pending again at the end of the scope.
class RaisedAside {
 public:
  RaisedAside() : exception_(pyapi::steal(pyapi::takeRaised())) {}
  ~RaisedAside() { pyapi::restoreRaised(exception_.get()); }
  RaisedAside(const RaisedAside&) = delete;
  PyObject* get() const { return exception_.get(); }

 private:
  pyapi::Ref<> exception_;
};

}  // namespace

// The call of the instruction under way has raised. Records it as a step that is expected to raise again. If
// it does not raise in a later run, or raises something else, kintsugi._polyfills.resume_after_raise runs in
// its place. Returns false where no exit is possible.
bool Steps::recordRaised(CallValues& ctx, CallKind kind, std::vector<ir::Operand> operands,
                         ir::StateId snap) {
  using ir::Operand;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  const RaisedAside raised;  // the code below asks objects for attributes and clears errors
  PyObject* exception = raised.get();
  faultPoint("raised");
  // The program may let go of it in the handler, a replay somewhere else.
  if (FinalizedObjects::passedFramesRunPython(exception)) {
    roles_.breaks.abort(diag::Code::KTG0302, {pyapi::typeNameOf(exception)});
    return false;
  }
  PyObject* resume = polyfill("resume_after_raise");
  const bool simple = roles_.breaks.isLive() && resume != nullptr && ctx.popped > 0 &&
                      frames_.current()->rebuildable &&
                      ctx.act.stackDepth() + ctx.popped == frames_.current()->stack.size();
  if (!simple) return false;
  const ir::ReturnAction action = ctx.pushes ? ir::ReturnAction::kPush : ir::ReturnAction::kDiscard;
  const ir::StateId parent =
      roles_.states.makeState(*frames_.current(), ctx.instr.next, ctx.popped, {}, action, Operand::null());
  if (!document_.trace.states[parent].rebuildable) return false;
  operands.insert(operands.begin(), Operand::constant(roles_.guards.constId(attemptFunction())));
  const Shadow shadow = appendCall(ctx, kind, operands, snap, exception);
  roles_.guards.guardType(shadow, exception);
  ir::FrameState state;
  state.parent = parent;
  state.code = roles_.guards.constId(PyFunction_GET_CODE(resume));
  state.function = Operand::constant(roles_.guards.constId(resume));
  const Operand outcome = Operand::source(shadow.sourceId());
  blocks_.setPending(false);
  emit(ir::Op::kGuardBlock, {Operand::integer(blocks_.newest())}, {},
       document_.trace.addState(state, {&outcome, 1}, {}));
  roles_.surroundings.noteRaised(exception);
  return true;
}

void Steps::writeRaisedStep(CallValues& ctx, StepRun& run) {
  if (pauses_.calledBack()) run.kind = CallKind::kOpaque;  // it may have changed what the trace knows
  exceptions_.setUnsafe(
      !recordRaised(ctx, run.kind == CallKind::kPure ? CallKind::kKnown : run.kind, run.operands, run.snap));
  if (run.kind == CallKind::kOpaque && roles_.breaks.isLive()) forgetEscaped(ctx);
}

}  // namespace kintsugi::capture
