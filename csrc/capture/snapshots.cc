// Snapshots: frame states.
//
// A state says, for each live slot, how to get its object again: a constant, a source, a value, or the recipe
// of a virtual object as it is at that moment. Outer frames do not change while an inner frame runs. So all
// states of the inner frame share one parent state, which was made when the call was entered.
#include "capture/snapshots.h"

#include <algorithm>

#include "pyapi/frame.h"
#include "pyapi/generator.h"
#include "pyapi/waiting_stack.h"
#include "support/check.h"

namespace kintsugi::capture {

using ir::Operand;

ir::StateId Snapshots::makeState(ShadowFrame& frame, int32_t pc, size_t popped, const Shadows& extra,
                                 ir::ReturnAction action, Operand replacement) {
  ir::FrameState state;
  state.parent = callerState(frame);
  state.code = recipes_.constId(reinterpret_cast<PyObject*>(frame.code));
  state.pc = pc;
  state.action = action;
  state.replacement = replacement;
  state.rebuildable =
      frame.rebuildable && (state.parent == ir::kNone || trace_.states[state.parent].rebuildable);
  Activation& act = *frame.act;
  PyObject** base = pyapi::stackBase(act.frame);
  std::vector<Operand> localOperands(frame.locals.size(), Operand::null());
  std::vector<Operand> stackOperands;
  auto put = [&](Shadow shadow, PyObject* object, Operand& out) {
    if (object == nullptr) shadow = Shadow::null();
    if (!operandOf(shadow, object, out)) {
      out = Operand::null();
      state.rebuildable = false;
    }
  };
  if (pyapi::ownedByGenerator(act.frame)) {
    auto* generator = reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame));
    if (virtuals_.ofRunningGenerator(act) == nullptr) {
      state.rebuildable = false;
      put(frame.functionShadow, frame.function.get(), state.function);
    } else {
      put(Shadow::virt(virtuals_.find(generator).value()), generator, state.function);
    }
  } else {
    put(frame.functionShadow, frame.function.get(), state.function);
  }
  for (size_t i = 0; i < frame.locals.size(); ++i)
    put(frame.locals[i], pyapi::localAt(act.frame, static_cast<int>(i)), localOperands[i]);
  const StackBefore* before = instruction_.stackBefore();
  const bool half =
      before != nullptr && before->frame == &frame && pc == instruction_.instr()->start && popped == 0;
  const Shadows& stack = half ? before->shadows : frame.stack;
  const auto stackObject = [&](size_t i) {
    if (act.sp == nullptr) return pyapi::waitingStackAt(act.frame, static_cast<int>(i));
    return half ? before->objects[i].get() : base[i];
  };
  KINTSUGI_CHECK(popped <= stack.size(), popped, " of ", stack.size(), " stack slots are taken");
  KINTSUGI_CHECK(!half || before->objects.size() == stack.size(), before->objects.size(), " objects for ",
                 stack.size(), " stack slots");
  size_t depth = stack.size() - popped;
  if (!frame.handled.isNull()) {
    put(frame.handled, frame.handledObject.get(), state.handled);
    state.handledOver = static_cast<uint16_t>(frame.handledOver);
    if (frame.handledOver >= depth) {
      state.handled = Operand::null();
      state.rebuildable = false;
    }
  }
  stackOperands.resize(depth + extra.size(), Operand::null());
  for (size_t i = 0; i < depth; ++i) put(stack[i], stackObject(i), stackOperands[i]);
  for (size_t i = 0; i < extra.size(); ++i) {
    if (extra[i].isConst() || !operandOf(extra[i], nullptr, stackOperands[depth + i])) {
      state.rebuildable = false;
    }
  }
  return trace_.addState(state, localOperands, stackOperands);
}

ir::StateId Snapshots::stateBefore() {
  if (instruction_.state() != ir::kNone) return instruction_.state();
  KINTSUGI_CHECK(instruction_.isUntouched(frames_.current()->stack.size()),
                 "a snapshot after the instruction has run");
  instruction_.setState(makeState(*frames_.current(), instruction_.instr()->start, 0, {},
                                  ir::ReturnAction::kPush, Operand::null()));
  return instruction_.state();
}

CallSite Snapshots::callSite(const Instr& instr, size_t popped, Shadows extra, ir::ReturnAction action) {
  CallSite site;
  site.instr = &instr;
  site.popped = popped;
  site.extra = std::move(extra);
  site.action = action;
  return site;
}

// True if the state in which the caller waits for the frame's result still says how it is.
bool Snapshots::isCurrent(ShadowFrame& frame) {
  CallSite& site = frame.site;
  if (site.state == ir::kNone) return false;
  if (site.epoch == virtuals_.epoch()) return true;
  if (!site.complete || virtuals_.lastGeneralChange() > site.epoch ||
      site.rebuildable != frame.caller->rebuildable ||
      trace_.states[site.state].parent != callerState(*frame.caller)) {
    return false;
  }
  if (!std::ranges::all_of(site.named, [&](const NamedRecipe& part) { return recipes_.isCurrent(part); }))
    return false;
  site.epoch = virtuals_.epoch();
  return true;
}

ir::StateId Snapshots::callerState(ShadowFrame& frame) {
  if (frame.caller == nullptr) return ir::kNone;
  CallSite& site = frame.site;
  if (isCurrent(frame)) return site.state;
  site.named.clear();
  const Recipes::Naming naming(recipes_, site.named);
  Operand replacement = Operand::null();
  KINTSUGI_CHECK(site.instr != nullptr || !frame.rebuildable, "a frame without a call site");
  if (ir::hasReplacement(site.action) &&
      !operandOf(site.replacement, site.replacementObject.get(), replacement)) {
    frame.rebuildable = false;
  }
  int32_t pc = frame.caller->act->pc;
  if (site.instr != nullptr) pc = ir::givesOperand(site.action) ? site.instr->start : site.instr->next;
  size_t popped = site.popped;
  if (site.instr == nullptr) {
    // C code runs the frame (as next() does with a generator), so the caller's instruction can't be finished
    // by an exit. Only an exception can go on in the caller, with the part of the stack that its handler
    // keeps.
    const pyapi::Handler handler = pyapi::findHandler(frame.caller->code, pc - 1);
    const size_t kept = handler.target < 0 ? 0 : static_cast<size_t>(handler.depth);
    popped = frame.caller->stack.size() - std::min(kept, frame.caller->stack.size());
  }
  site.rebuildable = frame.caller->rebuildable;
  site.state = makeState(*frame.caller, pc, popped, site.extra, site.action, replacement);
  site.epoch = virtuals_.epoch();
  const ir::FrameState& made = trace_.states[site.state];
  const bool parent = made.parent == ir::kNone || trace_.states[made.parent].rebuildable;
  site.complete = made.rebuildable == (site.rebuildable && parent);
  return site.state;
}

}  // namespace kintsugi::capture
