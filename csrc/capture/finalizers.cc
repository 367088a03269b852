// Lifetimes: the steps that run finalizers of objects that the program has dropped (finalizer_tracker.h).
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
  rec_.steps.stale();
  CallContext nothing(rec_, *frames_.current(), *frames_.current()->act, *instruction_.instr());
  rec_.steps.forgetEscaped(nothing);
  if (classVersions_.areExpected()) classVersions_.renew();
  instruction_.forgetState();
  if (rec_.live()) rec_.steps.flushBlock();
}

// All that ends with the first of two objects, whoever it is, ends before what goes with the second.
void Lifetimes::endFirst() {
  if (!rec_.live()) return;
  const bool any = finalizers_.putEndedFirst();
  // Of generators that are closed, and what is freed, the tracker knows nothing.
  if (any && !(watched_.empty() && finalized_.empty())) return endAndRelease(finalizers_.firstName());
  if (!watched_.empty()) closeDropped();
  if (!finalized_.empty() && rec_.live()) finalized_.freeDropped();
}

// The call is over. What has not ended is part of the result; what was dropped is needed by nothing after.
void Lifetimes::checkFinalizers() {
  finalizers_.checkReturned(returnedSteps(document_));
  const auto letGo = constants_.find(pyapi::dropReferenceFunction());
  if (letGo && !usesEndAtFinalizers(document_, *letGo)) endFor("object that is used behind its end");
}

}  // namespace kintsugi::capture
