// Reachability: the values, recipes, frame states and sources that an instruction needs, directly or through
// lists, recipes and the snapshot through which it may exit or raise. Liveness and the cutting of segments
// are built on it.
//
// Ownership: a Reach is plain data of the caller's, about one version of the trace. No GIL.
#pragma once

#include <span>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::ir {

struct Reach {
  std::vector<bool> values;
  std::vector<bool> recipes;
  std::vector<bool> states;
  std::vector<SourceId> sources;  // sorted, each once
};

// Visits what instructions need. onValue(id) and onSource(id) are called for each value and source, more than
// once for one that is named more than once; but each recipe and state is entered only once.
class ReachWalker {
 public:
  explicit ReachWalker(const Trace& trace);

  // Everything that one instruction needs, its own results aside.
  template <typename OnValue, typename OnSource>
  void instruction(const Instruction& ins, const OnValue& onValue, const OnSource& onSource) {
    pushInstruction(ins);
    Operand o;
    while (pop(o)) {
      if (o.kind == OperandKind::kValue) {
        onValue(o.id);
      } else {
        onSource(o.id);
      }
    }
  }

  const std::vector<bool>& seenRecipes() const { return seenRecipes_; }
  const std::vector<bool>& seenStates() const { return seenStates_; }

 private:
  void pushInstruction(const Instruction& ins);
  void pushState(StateId id);
  bool pop(Operand& out);  // the next value or source

  const Trace& trace_;
  std::vector<bool> seenRecipes_;
  std::vector<bool> seenStates_;
  std::vector<Operand> pending_;  // recipes and lists nest; a worklist bounds the stack
};

Reach reachFromCode(const Trace& trace);

}  // namespace kintsugi::ir
