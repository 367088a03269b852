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
  Counter(const ir::Trace& trace, const ir::SegmentRange& range, std::span<const ir::SegmentStop> stops,
          CountsOnce countsOnce, bool (*writes)(std::string_view))
      : trace_(trace),
        range_(range),
        stops_(stops),
        countsOnce_(countsOnce),
        writes_(writes),
        base_(trace.values.size(), ir::kNone),
        count_(trace.values.size(), 0),
        alias_(trace.values.size(), false),
        given_(trace.values.size(), false) {}

  std::optional<WriteCounts> run() {
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range_.begin]), inputs_);
    for (const ValueId input : inputs_) base_[input] = input;
    WriteCounts result;
    for (uint32_t i = range_.begin + 1; i < range_.end; ++i) {
      const Instruction& ins = trace_.code[i];
      if (ins.op == ir::Op::kAten && ir::isInGraph(ins) && !add(ins)) return std::nullopt;
      const size_t next = result.stops.size();
      if (next < stops_.size() && i == stops_[next].call) result.stops.push_back(giveTo(stops_[next]));
    }
    if (!counts_) return std::nullopt;
    for (const ValueId input : inputs_) {
      if (stops_.empty()) result.inputs.push_back(count_[input]);
    }
    std::vector<ValueId> outputs;
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range_.end]), outputs);
    for (const ValueId output : outputs) result.outputs.push_back(versionOf(output));
    return result;
  }

 private:
  // Of a tensor that the segment has made, and that no step of the program has been given.
  std::optional<uint32_t> versionOf(ValueId value) const {
    const ValueId base = base_[value];
    const bool isInput = std::ranges::find(inputs_, base) != inputs_.end();
    const bool own = base != ir::kNone && !isInput && !alias_[base] && !given_[base];
    return own ? std::optional(count_[base]) : std::nullopt;
  }

  std::vector<std::optional<uint32_t>> giveTo(const ir::SegmentStop& stop) {
    std::vector<std::optional<uint32_t>> versions;
    for (const ValueId value : stop.given) versions.push_back(versionOf(value));
    for (const ValueId value : stop.given) {
      if (base_[value] != ir::kNone) given_[base_[value]] = true;
    }
    return versions;
  }

  // False: it is a write that is not understood.
  bool add(const Instruction& ins) {
    const std::string_view name = trace_.opNames[ins.opName];
    // Running statistics are written to without a count.
    const bool uncounted = trace_.operatorOf(ins) == ops::Operator::kBatchNorm;
    if (!uncounted && (ops::isInPlace(name) || writes_(name))) return addWrite(ins, name);
    const auto operands = trace_.operandsOf(ins);
    const Sharing sharing = sharingOf(trace_, ins);
    std::vector<ValueId> values;
    ir::collectValues(trace_, operands, values);
    // `x.data` has a counter of its own, which a backend may take for that of `x`.
    const bool counterOfItsOwn = trace_.operatorOf(ins) == ops::Operator::kData;
    const bool ofNothing = values.empty();
    counts_ = counts_ || ofNothing || uncounted;
    const bool fresh = ofNothing || counterOfItsOwn || uncounted || ops::has(name, ops::Trait::kFresh) ||
                       ops::has(name, ops::Trait::kMakesEmpty) || isConverted(trace_, ins);
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
    const auto targets = targetsOf(trace_, ins);
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

  const ir::Trace& trace_;
  const ir::SegmentRange range_;
  const std::span<const ir::SegmentStop> stops_;
  const CountsOnce countsOnce_;
  bool (*const writes_)(std::string_view);
  std::vector<ValueId> inputs_;
  std::vector<ValueId> base_;    // by value, that which its counter belongs to; kNone: it is not known
  std::vector<uint32_t> count_;  // by base
  std::vector<bool> alias_;      // by value: it is memory of another tensor, with its own counter
  std::vector<bool> given_;      // by base: to a step of the program
  bool counts_ = false;
};

}  // namespace

bool storesResults(std::string_view name) {
  const std::string_view overload = name.substr(name.rfind('.') + 1);
  return overload == "out" || overload.ends_with("_out");
}

std::optional<WriteCounts> writeCounts(const ir::Trace& trace, const ir::SegmentRange& range,
                                       std::span<const ir::SegmentStop> stops, CountsOnce countsOnce,
                                       bool (*writes)(std::string_view name)) {
  return Counter(trace, range, stops, countsOnce, writes).run();
}

}  // namespace kintsugi::passes
