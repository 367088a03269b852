#include "passes/compact_snapshots.h"

#include <unordered_map>

#include "ir/reach.h"
#include "passes/renumber.h"

namespace kintsugi::passes {

namespace {

using ir::FrameState;
using ir::Operand;
using ir::StateId;

class Merger {
 public:
  explicit Merger(const ir::Trace& trace)
      : trace_(trace), reached_(ir::reachFromCode(trace).states), first_(trace.states.size(), ir::kNone) {}

  // The new number of each state.
  std::vector<StateId> run() {
    for (StateId s = 0; s < first_.size(); ++s) {
      if (reached_[s]) {
        resolve(s);
      }
    }
    std::vector<bool> representative(first_.size());
    for (const StateId first : first_) {
      if (first != ir::kNone) {
        representative[first] = true;
      }
    }
    const std::vector<uint32_t> numbers = numberKept(representative);
    std::vector<StateId> to(first_.size(), ir::kNone);
    for (size_t s = 0; s < to.size(); ++s) {
      to[s] = first_[s] == ir::kNone ? ir::kNone : numbers[first_[s]];
    }
    return to;
  }

 private:
  // Parents first, since equal means: with equal parents. They may have higher numbers.
  void resolve(StateId state) {
    std::vector<StateId> chain;
    for (; state != ir::kNone && first_[state] == ir::kNone; state = trace_.states[state].parent) {
      chain.push_back(state);
    }
    for (; !chain.empty(); chain.pop_back()) {
      const StateId at = chain.back();
      first_[at] = known_.try_emplace(key(trace_.states[at]), at).first->second;
    }
  }

  std::string key(const FrameState& state) const {
    std::string out;
    number(out, state.parent == ir::kNone ? ir::kNone : first_[state.parent]);
    number(out, state.code);
    number(out, state.pc);
    number(out, state.localCount);
    number(out, state.stackCount);
    number(out, static_cast<int64_t>(state.action));
    number(out, state.rebuildable ? 1 : 0);
    operand(out, state.function);
    operand(out, state.replacement);
    operand(out, state.handled);
    number(out, state.handledOver);
    for (const Operand& o : trace_.localsOf(state)) {
      operand(out, o);
    }
    for (const Operand& o : trace_.stackOf(state)) {
      operand(out, o);
    }
    return out;
  }

  static void number(std::string& out, int64_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  // Strings are interned, so their numbers stand for them; a list's elements follow its length.
  void operand(std::string& out, const Operand& o) const {
    number(out, static_cast<int64_t>(o.kind));
    if (o.kind != ir::OperandKind::kList) {
      number(out, o.i);
      return;
    }
    number(out, o.count);
    for (const Operand& element : trace_.listOf(o)) {
      operand(out, element);
    }
  }

  const ir::Trace& trace_;
  std::vector<bool> reached_;
  std::vector<StateId> first_;  // the equal state that stays
  std::unordered_map<std::string, StateId> known_;
};

}  // namespace

void compactSnapshots(guard::Document& document) {
  Renumbering to = Renumbering::identity(document);
  to.states = Merger(document.trace).run();
  renumber(document, to);
}

}  // namespace kintsugi::passes
