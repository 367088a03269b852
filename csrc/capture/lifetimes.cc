// Lifetimes: steps that run the finalizers of objects that the program has dropped (finalizer_tracker.h), and
// generators that are closed where they are dropped.
//
// The recorder's own reference keeps a generator alive that the program has dropped. If closing it would run
// code (it is suspended inside `try` or `with`, and a handler may take GeneratorExit), the generator is
// *watched*: it is closed as soon as nobody else holds it.
#include "capture/lifetimes.h"

#include <unordered_set>

#include "capture/finalizer_uses.h"
#include "pyapi/code.h"
#include "pyapi/drop_reference.h"
#include "pyapi/errors.h"
#include "pyapi/generator.h"
#include "pyapi/text.h"

namespace kintsugi::capture {

using ir::Operand;

void Lifetimes::endFor(const std::string& what) { breaks_.abort(diag::Code::KTG0302, {what}); }

void Lifetimes::endAndRelease(const std::string& what) {
  endFor(what);
  releaseObjects();
}

std::optional<ir::StateId> Lifetimes::beginFinalizer(const std::string& name) {
  if (!snapshots_.escapeHandled()) return std::nullopt;
  const ir::StateId snap = snapshots_.stateBefore();
  constIds_.constId(pyapi::dropReferenceFunction());
  if (!breaks_.isLive()) return std::nullopt;
  if (!breaks_.isStrict()) breaks_.noteBreak(diag::Code::KTG0101, {name});
  return snap;
}

void Lifetimes::finishFinalizer(ir::ValueId value, ir::StateId snap) {
  const Operand operands[] = {Operand::constant(constIds_.constId(pyapi::dropReferenceFunction())),
                              Operand::value(value)};
  const ir::Type result[] = {{ir::TypeKind::kObject, ir::kNone}};
  document_.trace.append(ir::Op::kCall, operands, result, snap);
  blocks_.next();
  reads_.invalidateReads();
  reads_.forgetEscapedObjects();
  if (classVersions_.areExpected()) classVersions_.renew();
  instruction_.forgetState();
  if (breaks_.isLive()) reads_.flushBlock();
}

// Two tracked objects are about to be dropped in turn. Everything that goes with the first one has to end
// before the second one does.
void Lifetimes::runDroppedFinalizers() {
  if (!breaks_.isLive()) return;
  const bool any = finalizers_.moveEndedToFront();
  // The tracker does not know the order of closed generators and freed objects relative to its own.
  if (any && !(watched_.empty() && finalized_.empty())) return endAndRelease(finalizers_.firstName());
  if (!watched_.empty()) closeDropped();
  if (!finalized_.empty() && breaks_.isLive()) finalized_.freeDropped();
}

// At the end of the call. Objects that have not ended must be part of the result, and nothing may use an
// object after its end.
void Lifetimes::checkFinalizers() {
  finalizers_.checkReturned(returnedSteps(document_));
  const auto letGo = constants_.find(pyapi::dropReferenceFunction());
  if (letGo && !usesEndAtFinalizers(document_, *letGo)) endFor("object that is used behind its end");
}

// A generator was suspended. Watches it if code will run when it is dropped here.
void Lifetimes::watch(uint32_t generator) {
  Virtual& v = virtuals_.at(generator);
  const bool runs = !pyapi::closesQuietly(pyapi::asGenerator(v.object.get())) ||
                    watched_.holdsAny(v.frame->locals) || watched_.holdsAny(v.frame->stack);
  if (runs) watched_.add(generator);
}

// Between two instructions: closes the watched generators that only the recorder holds, or objects that only
// the recorder holds.
bool Lifetimes::closeDropped() {
  bool any = false;
  while (breaks_.isLive()) {
    if (const auto dropped = watched_.takeDropped()) {
      closer_.closeGenerator(virtuals_.at(*dropped));
    } else if (watched_.empty() || !holders_.dropOne()) {
      break;
    }
    any = true;
  }
  if (breaks_.isLive() && holders_.isTangled()) endAndRelease("object that holds several generators");
  return any;
}

// At the end of the recording: drops the recorder's references, so that objects die when the program drops
// them.
void Lifetimes::releaseObjects() {
  released_ = true;
  finalizers_.forgetAll();
  watched_.clear();
  holders_.clear();
  finalized_.clear();
  sources_.clear();
  const pyapi::PendingErrorScope kept;
  // The newest objects go first. If an exception has emptied the stacks of frames, iterators of inner loops
  // thus go before those of outer loops. (Locals live on with the traceback.)
  virtuals_.releaseObjects();  // handlers of outer frames may still look at the Virtuals
  kept_.clear();
}

// At the end of the call. A watched generator that is still suspended has to be part of the result. Otherwise
// it was dropped with an object that held it, and the recorder has not noticed: the recording ends.
void Lifetimes::checkWatched() {
  const ir::Trace& trace = document_.trace;
  std::vector<ir::Operand> open(trace.operandsOf(trace.code.back()).begin(),
                                trace.operandsOf(trace.code.back()).end());
  std::unordered_set<ir::RecipeId> reached;
  while (!open.empty()) {
    const ir::Operand operand = open.back();
    open.pop_back();
    if (operand.kind != ir::OperandKind::kRecipe || !reached.insert(operand.id).second) continue;
    const auto& parts = trace.recipes[operand.id].parts;
    open.insert(open.end(), parts.begin(), parts.end());
  }
  for (uint32_t id : watched_.ids()) {
    const Virtual& v = virtuals_.at(id);
    if (v.kind != VirtualKind::kGenerator || !v.frame || v.value != ir::kNone) continue;
    if (v.recipe == ir::kNone || !reached.contains(v.recipe)) {
      breaks_.abort(diag::Code::KTG0302, {"generator (" + pyapi::utf8(pyapi::qualifiedNameOf(v.frame->code)) +
                                          ") that is dropped while it waits"});
      return;
    }
  }
}

}  // namespace kintsugi::capture
