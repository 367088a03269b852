// Recorder: how a recording begins in the middle of a trace, for a side trace.
#include "capture/recorder.h"
#include "capture/restorer.h"
#include "capture/sizes.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"
#include "support/check.h"

namespace kintsugi::capture {

using ir::Operand;
using ir::OperandKind;

namespace {

// Removes the guard blocks from the failed guard on, and what they have read. Sources keep their numbers.
void cutDocument(guard::Document& document, uint32_t guard, guard::BlockId firstBlock, ir::ConstId none) {
  document.trace.code.resize(guard);
  std::erase_if(document.guards.guards, [&](const guard::Guard& g) { return g.block >= firstBlock; });
  for (guard::SourceNode& node : document.sources.nodes) {
    if (node.block >= firstBlock) {
      node = {guard::SourceKind::kPinned, ir::kNone, none, 0, 0};
    }
  }
}

}  // namespace

Recorder::Recorder(const RecorderOptions& options, const SideStart& start) : options_(options) {
  document_ = start.parent.document;
  for (const pyapi::Ref<>& object : start.parent.consts) constants_.adopt(object.get());
  guard::BlockId firstBlock = 1;
  ir::ValueId values = 0;
  ir::ValueId known = 0;  // values from here on are made behind the last block
  for (uint32_t i = 0; i < start.guard; ++i) {
    const ir::Instruction& ins = document_.trace.code[i];
    if (ins.resultCount > 0) values = ins.firstResult + ins.resultCount;
    if (ins.op != ir::Op::kGuardBlock) continue;
    ++firstBlock;
    known = values;
  }
  cutDocument(document_, start.guard, firstBlock, guards_.constId(Py_None));
  states_.adopt(start.parent.globalStates, start.parent.statesAfterCalls);
  exceptions_.setHandledOutside(pyapi::handledException());
  sources_.adopt(start.parent.sourceHashes);
  blocks_.beginAt(firstBlock);
  steps_.invalidateReads();
  ops_.adopt(document_.trace, start.parent.metaLevels, known);
  blocks_.setPending(true);
  beginWithGuard(start);
  restoreFrames(start);
}

// The first instruction of a side trace is a guard that tells it from its parent and its siblings.
void Recorder::beginWithGuard(const SideStart& start) {
  using ir::Op;
  const ir::Instruction& failed = start.parent.document.trace.code[start.guard];
  const Operand value = start.parent.document.trace.operandsOf(failed)[0];
  switch (failed.op) {
    case Op::kGuardTrue:
    case Op::kGuardFalse:
      steps_.emit(failed.op == Op::kGuardTrue ? Op::kGuardFalse : Op::kGuardTrue, {value}, {}, start.state);
      break;
    case Op::kGuardValue:
      KINTSUGI_CHECK(start.seen.kind != OperandKind::kNone, "an exit without a number");
      steps_.emit(Op::kGuardValue, {value, start.seen}, {}, start.state);
      torchCalls_.pinNumber(value.id);
      break;
    case Op::kGuardMeta: {
      KINTSUGI_CHECK(start.seenMeta != nullptr, "an exit without metadata");
      // Sizes are as open as in the failed guard. If that guard was a guess (pinLikely), they are open now.
      const bool varies =
          options_.dynamic != 0 && likelyOperator(start.parent.document.trace, start.guard).has_value();
      const auto expected = static_cast<size_t>(start.parent.document.trace.operandsOf(failed)[1].i);
      const ir::TensorDesc seen =
          varies ? torchapi::atLevel(*start.seenMeta, torchapi::MetaLevel::kRank)
                 : torchapi::comparedLike(*start.seenMeta, start.parent.document.trace.metas.at(expected));
      ir::MetaId meta = ops_.internMeta(document_.trace, seen);
      ops_.setLevel(value.id, seen.isOpen() ? torchapi::MetaLevel::kRank : torchapi::MetaLevel::kFull);
      steps_.emit(Op::kGuardMeta, {value, Operand::integer(meta)}, {}, start.state);
      break;
    }
    default:
      KINTSUGI_CHECK(failed.op == Op::kGuardBlock, "an exit at ", int(failed.op));
  }
}

void Recorder::restoreFrames(const SideStart& start) {
  Restorer restore(context_, start);
  const ir::Trace& trace = start.parent.document.trace;
  std::vector<ir::StateId> chain;
  for (ir::StateId id = start.state; id != ir::kNone; id = trace.states[id].parent) chain.push_back(id);
  restored_.resize(chain.size());
  ShadowFrame* caller = nullptr;
  for (size_t i = chain.size(); i-- > 0;) {
    const ir::FrameState& state = trace.states[chain[i]];
    auto frame = std::make_unique<ShadowFrame>();
    frame->code = reinterpret_cast<PyCodeObject*>(start.parent.consts[state.code].get());
    frame->caller = caller;
    frame->function = pyapi::newRef(restore.object(state.function));
    frame->functionShadow = restore.shadow(state.function);
    if (PyGen_CheckExact(frame->function.get())) {
      Virtual& generator = objects_.virtualOf(frame->functionShadow);
      frame->function = generator.partObjects[0].clone();
      frame->functionShadow = generator.parts[0];
    }
    for (const Operand& o : trace.localsOf(state)) frame->locals.push_back(restore.shadow(o));
    for (const Operand& o : trace.stackOf(state)) frame->stack.push_back(restore.shadow(o));
    if (state.handled.kind != OperandKind::kNull) {
      frame->handled = restore.shadow(state.handled);
      frame->handledObject = pyapi::newRef(restore.object(state.handled));
      frame->handledOver = state.handledOver;
    }
    RestoredFrame& entry = restored_[i];
    entry.frame = frame.get();
    entry.action = state.action;
    entry.replacement = restore.shadow(state.replacement);
    entry.waiting.start = entry.waiting.next = state.pc;
    if (caller != nullptr) {
      RestoredFrame& outer = restored_[i + 1];
      frame->site.instr = &outer.waiting;
      frame->site.action = outer.action;
      frame->site.replacement = outer.replacement;
      if (ir::hasReplacement(outer.action)) {
        frame->site.replacementObject = pyapi::newRef(restore.object(trace.states[chain[i + 1]].replacement));
      }
    }
    caller = frame.get();
    frames_.add(std::move(frame));
  }
}

void Recorder::frameOpened(size_t index, pyapi::Frame* frame) {
  RestoredFrame& entry = restored_[index];
  entry.waitingAct.frame = frame;
  entry.frame->act = &entry.waitingAct;
}

// A frame of the snapshot goes on. If an inner frame has just returned, its result is on the stack.
bool Recorder::resumeRestored(Activation& act, bool throwing) {
  const size_t index = restored_.takeExpected();
  RestoredFrame& entry = restored_[index];
  const bool innermost = index == 0;
  ShadowFrame* frame = entry.frame;
  frame->act = &act;
  act.observerData = frame;
  frames_.setCurrent(frame);
  if (innermost || throwing) return true;
  switch (entry.action) {
    case ir::ReturnAction::kDiscard:
      return true;
    case ir::ReturnAction::kReplace:
      frame->push(entry.replacement);
      return true;
    case ir::ReturnAction::kIterate:
      expected_.gaveItem() ? frame->push(expected_.result()) : frame->drop(1);
      return true;
    case ir::ReturnAction::kDelegate:
      if (!expected_.gaveItem() &&
          pyapi::decodeBefore(frame->code, entry.waiting.next).op == op::SEND_AND_DROP)
        frame->drop(1);
      frame->push(expected_.result());
      return true;
    case ir::ReturnAction::kNextOr:
      frame->push(expected_.gaveItem() ? expected_.result() : entry.replacement);
      return true;
    case ir::ReturnAction::kClose:
      frame->push(Shadow::constant());
      return true;
    case ir::ReturnAction::kCallable:
      frame->push(expected_.result());
      frame->push(Shadow::null());
      return true;
    case ir::ReturnAction::kOperandBelow:
      frame->push(expected_.result());
      frame->push(entry.replacement);
      return true;
    default:
      frame->push(expected_.result());
      return true;
  }
}

}  // namespace kintsugi::capture
