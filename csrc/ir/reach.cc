#include "ir/reach.h"

#include <algorithm>

namespace kintsugi::ir {

ReachWalker::ReachWalker(const Trace& trace)
    : trace_(trace), seenRecipes_(trace.recipes.size()), seenStates_(trace.states.size()) {}

void ReachWalker::pushInstruction(const Instruction& ins) {
  const std::span<const Operand> operands = trace_.operandsOf(ins);
  pending_.assign(operands.begin(), operands.end());
  if ((opInfo(ins.op).flags & (kExit | kRaise)) != 0) {
    pushState(ins.snap);
  }
}

// The chain stops at a state that was seen: its parents were, too.
void ReachWalker::pushState(StateId id) {
  while (id < seenStates_.size() && !seenStates_[id]) {
    seenStates_[id] = true;
    const FrameState& state = trace_.states[id];
    const std::span<const Operand> locals = trace_.localsOf(state);
    const std::span<const Operand> stack = trace_.stackOf(state);
    pending_.push_back(state.function);
    pending_.push_back(state.handled);
    if (hasReplacement(state.action)) {
      pending_.push_back(state.replacement);
    }
    pending_.insert(pending_.end(), locals.begin(), locals.end());
    pending_.insert(pending_.end(), stack.begin(), stack.end());
    id = state.parent;
  }
}

bool ReachWalker::pop(Operand& out) {
  while (!pending_.empty()) {
    const Operand o = pending_.back();
    pending_.pop_back();
    switch (o.kind) {
      case OperandKind::kValue:
      case OperandKind::kSource:
        out = o;
        return true;
      case OperandKind::kRecipe:
        if (o.id < seenRecipes_.size() && !seenRecipes_[o.id]) {
          seenRecipes_[o.id] = true;
          const std::vector<Operand>& parts = trace_.recipes[o.id].parts;
          pending_.insert(pending_.end(), parts.begin(), parts.end());
        }
        break;
      case OperandKind::kList: {
        const std::span<const Operand> elements = trace_.listOf(o);
        pending_.insert(pending_.end(), elements.begin(), elements.end());
        break;
      }
      case OperandKind::kNone:
      case OperandKind::kConst:
      case OperandKind::kInt:
      case OperandKind::kFloat:
      case OperandKind::kBool:
      case OperandKind::kStr:
      case OperandKind::kComplex:
      case OperandKind::kDtype:
      case OperandKind::kDevice:
      case OperandKind::kLayout:
      case OperandKind::kMemoryFormat:
      case OperandKind::kNull:
        break;
    }
  }
  return false;
}

Reach reachFromCode(const Trace& trace) {
  Reach reach;
  reach.values.resize(trace.values.size());
  ReachWalker walker(trace);
  const auto onValue = [&reach](ValueId v) {
    if (v < reach.values.size()) {
      reach.values[v] = true;
    }
  };
  const auto onSource = [&reach](SourceId s) { reach.sources.push_back(s); };
  for (const Instruction& ins : trace.code) {
    walker.instruction(ins, onValue, onSource);
  }
  std::sort(reach.sources.begin(), reach.sources.end());
  reach.sources.erase(std::unique(reach.sources.begin(), reach.sources.end()), reach.sources.end());
  reach.recipes = walker.seenRecipes();
  reach.states = walker.seenStates();
  return reach;
}

}  // namespace kintsugi::ir
