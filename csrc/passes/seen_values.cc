#include "passes/seen_values.h"

#include <algorithm>

#include "ir/reach.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "support/check.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::ValueId;

bool writesToFirst(const ir::Trace& trace, const Instruction& ins) {
  const auto operands = trace.operandsOf(ins);
  return ops::isInPlace(trace.opNames[ins.opName]) && !operands.empty() && operands[0].isValue();
}

SeenValues::SeenValues(const ir::Trace& trace)
    : shown_(trace.values.size()),
      lastFrame_(trace.values.size(), ir::kNone),
      writtenTo_(trace.values.size()) {
  for (ValueId value = 0; value < writtenTo_.size(); ++value) {
    writtenTo_[value] = value;
  }
  for (const Instruction& ins : trace.code) {
    if (ins.op == Op::kAten && ins.resultCount == 1 && writesToFirst(trace, ins)) {
      writtenTo_[ins.firstResult] = writtenTo_[trace.operandsOf(ins)[0].id];
    }
  }
  const auto noSource = [](ir::SourceId) {};
  ir::ReachWalker given(trace), held(trace);
  for (size_t at = trace.code.size(); at-- > 0;) {  // from the last on: the first hit is the last frame
    Instruction ins = trace.code[at];
    if (ir::isGraphOp(ins.op)) {
      continue;
    }
    // A run leaves the trace at these only if memory runs out or the like, so their frames do not count.
    const bool stays = ins.op == Op::kRet || ins.op == Op::kBuild;
    if (!stays) {
      held.instruction(
          ins,
          [&](ValueId value) {
            uint32_t& last = lastFrame_[writtenTo_[value]];
            last = last == ir::kNone ? static_cast<uint32_t>(at) : last;
          },
          noSource);
    }
    ins.snap = ir::kNone;
    given.instruction(
        ins, [&](ValueId value) { shown_[writtenTo_[value]] = true; }, noSource);
  }
}

std::optional<uint32_t> SeenValues::lastFrame(ValueId value) const {
  const uint32_t at = lastFrame_[writtenTo_[value]];
  return at == ir::kNone ? std::nullopt : std::optional<uint32_t>(at);
}

void SeenCuts::close(uint32_t last, std::vector<uint32_t>& cuts) {
  uint32_t begin = 0;
  for (const Pair& pair : pairs_) {
    KINTSUGI_CHECK(pair.maker < pair.at, "instruction ", pair.at, " reads what ", pair.maker, " makes");
    const auto shown =
        std::find_if(showing_.begin(), showing_.end(), [&](uint32_t at) { return at >= begin; });
    const uint32_t end = shown == showing_.end() ? last : std::min(last, *shown - 1);
    if (pair.maker >= begin && pair.lastFrame > end) {
      cuts.push_back(pair.at);
      begin = pair.at;
    }
  }
  pairs_.clear();
  showing_.clear();
}

}  // namespace kintsugi::passes
