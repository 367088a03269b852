#include "passes/write_counts.h"

#include <algorithm>

#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/kept_by_eager.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::ValueId;

namespace {

// The arguments that an operator writes to: the first, or those that its results are stored in. Nothing: it
// is another kind of operator.
std::optional<std::vector<ValueId>> targetsOf(const ir::Trace& trace, const Instruction& ins) {
  const std::string_view name = trace.opNames[ins.opName];
  const auto operands = trace.operandsOf(ins);
  std::vector<ValueId> targets;
  if (ops::isInPlace(name) && !operands.empty()) {
    ir::collectValues(trace, operands.first(1), targets);
    return targets;
  }
  if (!storesResults(name) || ins.resultCount == 0 || ins.resultCount > operands.size()) return std::nullopt;
  ir::collectValues(trace, operands.last(ins.resultCount), targets);
  return targets.size() == ins.resultCount ? std::optional(targets) : std::nullopt;
}

class Counter {
 public:
  Counter(const ir::Trace& segment, CountsOnce countsOnce, bool (*writes)(std::string_view))
      : segment_(segment),
        countsOnce_(countsOnce),
        writes_(writes),
        base_(segment.values.size(), ir::kNone),
        count_(segment.values.size(), 0),
        alias_(segment.values.size(), false) {}

  std::optional<WriteCounts> run() {
    ir::collectValues(segment_, segment_.operandsOf(segment_.code.front()), inputs_);
    for (const ValueId input : inputs_) base_[input] = input;
    for (const Instruction& ins : segment_.code) {
      if (ins.op == ir::Op::kAten && !add(ins)) return std::nullopt;
    }
    if (!counts_) return std::nullopt;
    WriteCounts result;
    for (const ValueId input : inputs_) result.inputs.push_back(count_[input]);
    std::vector<ValueId> outputs;
    ir::collectValues(segment_, segment_.operandsOf(segment_.code.back()), outputs);
    for (const ValueId output : outputs) {
      const ValueId base = base_[output];
      const bool isInput = std::ranges::find(inputs_, base) != inputs_.end();
      const bool own = base != ir::kNone && !isInput && !alias_[base];
      result.outputs.push_back(own ? std::optional(count_[base]) : std::nullopt);
    }
    return result;
  }

 private:
  // False: it is a write that is not understood.
  bool add(const Instruction& ins) {
    const std::string_view name = segment_.opNames[ins.opName];
    // Running statistics are written to without a count.
    const bool uncounted = segment_.operatorOf(ins) == ops::Operator::kBatchNorm;
    if (!uncounted && (ops::isInPlace(name) || writes_(name))) return addWrite(ins, name);
    const auto operands = segment_.operandsOf(ins);
    const Sharing sharing = sharingOf(segment_, ins);
    std::vector<ValueId> values;
    ir::collectValues(segment_, operands, values);
    // `x.data` has a counter of its own, which a backend may take for that of `x`.
    const bool counterOfItsOwn = segment_.operatorOf(ins) == ops::Operator::kData;
    const bool ofNothing = values.empty();
    counts_ = counts_ || ofNothing || uncounted;
    const bool fresh = ofNothing || counterOfItsOwn || uncounted || ops::has(name, ops::Trait::kFresh) ||
                       ops::has(name, ops::Trait::kMakesEmpty) || isConverted(segment_, ins);
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      if (counterOfItsOwn || ofNothing || sharing == Sharing::kNone) {
        base_[ins.firstResult + r] = fresh ? ins.firstResult + r : ir::kNone;
        if (counterOfItsOwn) alias_[ins.firstResult + r] = true;
      } else if (operands[0].isValue()) {
        base_[ins.firstResult + r] = base_[operands[0].id];
      }
    }
    return true;
  }

  bool addWrite(const Instruction& ins, std::string_view name) {
    const auto targets = targetsOf(segment_, ins);
    if (!targets || !countsOnce_(name)) return false;
    for (size_t k = 0; k < targets->size(); ++k) {
      const ValueId base = base_[(*targets)[k]];
      if (base == ir::kNone) return false;
      ++count_[base];
      if (k < ins.resultCount) base_[ins.firstResult + k] = base;
    }
    counts_ = true;
    return true;
  }

  const ir::Trace& segment_;
  const CountsOnce countsOnce_;
  bool (*const writes_)(std::string_view);
  std::vector<ValueId> inputs_;
  std::vector<ValueId> base_;    // by value, that which its counter belongs to; kNone: it is not known
  std::vector<uint32_t> count_;  // by base
  std::vector<bool> alias_;      // by value: it is memory of another tensor, with its own counter
  bool counts_ = false;
};

}  // namespace

bool storesResults(std::string_view name) {
  const std::string_view overload = name.substr(name.rfind('.') + 1);
  return overload == "out" || overload.ends_with("_out");
}

std::optional<WriteCounts> writeCounts(const ir::Trace& segment, CountsOnce countsOnce,
                                       bool (*writes)(std::string_view)) {
  return Counter(segment, countsOnce, writes).run();
}

}  // namespace kintsugi::passes
