// Recorder: the steps that run finalizers of objects that the program has dropped (finalizer_tracker.h).
#include "capture/exceptions.h"
#include "capture/finalizer_uses.h"
#include "capture/recorder.h"
#include "pyapi/let_go.h"

namespace kintsugi::capture {

using ir::Operand;

void Recorder::endFor(const std::string& what) { abort(diag::Code::KTG0302, {what}); }

void Recorder::endAndRelease(const std::string& what) {
  endFor(what);
  letGo();
}

std::optional<ir::StateId> Recorder::beginFinalizer(const std::string& name) {
  if (!escapeHandled(*this)) return std::nullopt;
  const ir::StateId snap = stateBefore();
  constId(pyapi::letGoFunction());
  if (!live()) return std::nullopt;
  if (!isStrict()) noteBreak(diag::Code::KTG0101, {name});
  return snap;
}

void Recorder::finishFinalizer(ir::ValueId value, ir::StateId snap) {
  const Operand operands[] = {Operand::constant(constId(pyapi::letGoFunction())), Operand::value(value)};
  const ir::Type result[] = {{ir::TypeKind::kObject, ir::kNone}};
  document_.trace.append(ir::Op::kCall, operands, result, snap);
  blocks_.next();
  stale();
  CallContext nothing(*this, *frames_.current(), *frames_.current()->act, *instruction_.instr());
  forgetEscaped(nothing);
  if (classVersions_.areExpected()) classVersions_.renew();
  instruction_.forgetState();
  if (live()) flushBlock();
}

// All that ends with the first of two objects, whoever it is, ends before what goes with the second.
void Recorder::endFirst() {
  if (!live()) return;
  const bool any = finalizers_.putEndedFirst();
  // Of generators that are closed, and what is freed, the tracker knows nothing.
  if (any && !(watched_.empty() && finalized_.empty())) return endAndRelease(finalizers_.firstName());
  if (!watched_.empty()) closeDropped();
  if (!finalized_.empty() && live()) finalized_.freeDropped();
}

// The call is over. What has not ended is part of the result; what was dropped is needed by nothing behind.
void Recorder::checkFinalizers() {
  finalizers_.checkReturned(returnedSteps(document_));
  const auto letGo = constants_.find(pyapi::letGoFunction());
  if (letGo && !usesEndAtFinalizers(document_, *letGo)) endFor("object that is used behind its end");
}

}  // namespace kintsugi::capture
