// Lifetimes: steps that run the finalizers of objects that the program has dropped (finalizer_tracker.h).
#include "capture/exceptions.h"
#include "capture/finalizer_uses.h"
#include "capture/record_context.h"
#include "pyapi/drop_reference.h"

namespace kintsugi::capture {

using ir::Operand;

void Lifetimes::endFor(const std::string& what) { rec_.abort(diag::Code::KTG0302, {what}); }

void Lifetimes::endAndRelease(const std::string& what) {
  endFor(what);
  releaseObjects();
}

std::optional<ir::StateId> Lifetimes::beginFinalizer(const std::string& name) {
  if (!escapeHandled(rec_)) return std::nullopt;
  const ir::StateId snap = rec_.snapshots.stateBefore();
  rec_.guards.constId(pyapi::dropReferenceFunction());
  if (!rec_.live()) return std::nullopt;
  if (!rec_.breaks.isStrict()) rec_.breaks.noteBreak(diag::Code::KTG0101, {name});
  return snap;
}

void Lifetimes::finishFinalizer(ir::ValueId value, ir::StateId snap) {
  const Operand operands[] = {Operand::constant(rec_.guards.constId(pyapi::dropReferenceFunction())),
                              Operand::value(value)};
  const ir::Type result[] = {{ir::TypeKind::kObject, ir::kNone}};
  document_.trace.append(ir::Op::kCall, operands, result, snap);
  blocks_.next();
  rec_.steps.invalidateReads();
  CallContext nothing(rec_, *frames_.current(), *frames_.current()->act, *instruction_.instr());
  rec_.steps.forgetEscaped(nothing);
  if (classVersions_.areExpected()) classVersions_.renew();
  instruction_.forgetState();
  if (rec_.live()) rec_.steps.flushBlock();
}

// Two tracked objects are about to be dropped in turn. Everything that goes with the first one has to end
// before the second one does.
void Lifetimes::runDroppedFinalizers() {
  if (!rec_.live()) return;
  const bool any = finalizers_.moveEndedToFront();
  // The tracker does not know the order of closed generators and freed objects relative to its own.
  if (any && !(watched_.empty() && finalized_.empty())) return endAndRelease(finalizers_.firstName());
  if (!watched_.empty()) closeDropped();
  if (!finalized_.empty() && rec_.live()) finalized_.freeDropped();
}

// At the end of the call. Objects that have not ended must be part of the result, and nothing may use an
// object after its end.
void Lifetimes::checkFinalizers() {
  finalizers_.checkReturned(returnedSteps(document_));
  const auto letGo = constants_.find(pyapi::dropReferenceFunction());
  if (letGo && !usesEndAtFinalizers(document_, *letGo)) endFor("object that is used behind its end");
}

}  // namespace kintsugi::capture
