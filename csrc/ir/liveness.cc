#include "ir/liveness.h"

#include <algorithm>
#include <utility>

#include "ir/reach.h"

namespace kintsugi::ir {

namespace {

class Walker {
 public:
  Walker(const Trace& trace, const SourceRoots& roots)
      : trace_(trace), roots_(roots), reach_(trace), lastUse_(trace.values.size(), kNone) {
    const size_t count = std::min(roots_.block.size(), roots_.resolver.size());
    for (size_t s = 0; s < count; ++s) {
      if (roots_.resolver[s] != kNone) resolvers_.emplace_back(roots_.block[s], roots_.resolver[s]);
    }
    std::ranges::sort(resolvers_);
  }

  // Backwards: the first sight of a state or recipe is its last use.
  Liveness run() {
    const auto onValue = [this](ValueId v) { useValue(v); };
    const auto onSource = [this](SourceId s) { useSource(s); };
    for (size_t i = trace_.code.size(); i-- > 0;) {
      at_ = static_cast<uint32_t>(i);
      const Instruction& ins = trace_.code[i];
      reach_.instruction(ins, onValue, onSource);
      if (ins.op == Op::kGuardBlock) {
        useBlock(trace_.operandsOf(ins));
      }
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        useValue(ins.firstResult + r);  // an unused result dies where it is made
      }
    }
    return {std::move(lastUse_)};
  }

 private:
  void useValue(ValueId value) {
    if (value < lastUse_.size() && lastUse_[value] == kNone) {
      lastUse_[value] = at_;
    }
  }

  void useSource(SourceId source) {
    if (source < roots_.itself.size() && roots_.itself[source] != kNone) {
      useValue(roots_.itself[source]);
    }
  }

  // The guards of a block walk its sources from the values of the steps before it.
  void useBlock(std::span<const Operand> operands) {
    if (operands.empty() || operands[0].kind != OperandKind::kInt) {
      return;
    }
    const auto block = [](const auto& resolver) { return int64_t{resolver.first}; };
    for (const auto& [id, value] : std::ranges::equal_range(resolvers_, operands[0].i, {}, block))
      useValue(value);
  }

  const Trace& trace_;
  const SourceRoots& roots_;
  ReachWalker reach_;
  std::vector<std::pair<uint32_t, ValueId>> resolvers_;  // guard blocks and what they begin at, sorted
  std::vector<uint32_t> lastUse_;
  uint32_t at_ = 0;
};

}  // namespace

Liveness computeLiveness(const Trace& trace) { return computeLiveness(trace, SourceRoots{}); }

Liveness computeLiveness(const Trace& trace, const SourceRoots& roots) { return Walker(trace, roots).run(); }

}  // namespace kintsugi::ir
