#include "passes/name_segments.h"

#include <algorithm>
#include <iterator>

#include "ir/reach.h"
#include "ir/segments.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::ValueId;

constexpr uint32_t kOutside = ir::kNone;

class Namer {
 public:
  Namer(ir::Trace& trace, std::vector<Instruction>& code, const SegmentPlaces& places)
      : trace_(trace), code_(code), places_(places), graph_(places.graph) {}

  void run() {
    std::vector<uint32_t> madeBy(trace_.values.size(), kOutside);
    for (size_t i = 0; i < code_.size(); ++i) {
      for (uint32_t r = 0; r < code_[i].resultCount; ++r) {
        madeBy[code_[i].firstResult + r] = graph_[i];
      }
    }
    std::vector<std::vector<ValueId>> inputs(places_.count);
    findInputs(madeBy, inputs);
    const std::vector<bool> needed = findOutputs(madeBy);
    std::vector<std::vector<ValueId>> outputs(places_.count);
    for (size_t i = 0; i < code_.size(); ++i) {
      for (uint32_t r = 0; r < code_[i].resultCount && graph_[i] != kOutside; ++r) {
        if (needed[code_[i].firstResult + r]) {
          outputs[graph_[i]].push_back(code_[i].firstResult + r);
        }
      }
    }
    uint32_t number = 0;
    for (size_t i = 0; i < code_.size(); ++i) {
      Instruction& ins = code_[i];
      if (i < places_.start) {
        number += ins.op == Op::kSegmentEnd ? 1 : 0;
      } else if (ins.op == Op::kSegment || ins.op == Op::kSegmentEnd) {
        const std::vector<ValueId>& values = (ins.op == Op::kSegment ? inputs : outputs)[number];
        std::vector<Operand> operands;
        std::transform(values.begin(), values.end(), std::back_inserter(operands), Operand::value);
        ins.firstOperand = static_cast<uint32_t>(trace_.operands.size());
        ins.operandCount = 1;
        trace_.operands.push_back(trace_.listOperand(operands));
        number += ins.op == Op::kSegmentEnd ? 1 : 0;
      }
    }
  }

 private:
  // By value: the segment one of whose stops gives it.
  std::vector<uint32_t> madeByStops() const {
    std::vector<uint32_t> made(trace_.values.size(), kOutside);
    uint32_t number = 0;
    bool open = false;
    for (const Instruction& ins : code_) {
      open = ins.op == Op::kSegment || (open && ins.op != Op::kSegmentEnd);
      number += ins.op == Op::kSegmentEnd ? 1 : 0;
      if (open && ins.op == Op::kInput) {
        made[ins.firstResult] = number;
      }
    }
    return made;
  }

  void findInputs(const std::vector<uint32_t>& madeBy, std::vector<std::vector<ValueId>>& inputs) const {
    std::vector<uint32_t> namedIn = madeByStops();
    std::vector<ValueId> used;
    for (size_t i = 0; i < code_.size(); ++i) {
      if (graph_[i] == kOutside || code_[i].region != ir::RegionMark::kNone) {
        continue;
      }
      used.clear();
      ir::collectValues(trace_, trace_.operandsOf(code_[i]), used);
      for (const ValueId value : used) {
        if (madeBy[value] != graph_[i] && namedIn[value] != graph_[i] &&
            trace_.values[value].kind != ir::TypeKind::kNone) {
          namedIn[value] = graph_[i];
          inputs[graph_[i]].push_back(value);
        }
      }
    }
  }

  // By value: does anything outside its own graph need it?
  std::vector<bool> findOutputs(const std::vector<uint32_t>& madeBy) const {
    std::vector<bool> needed(trace_.values.size());
    ir::forEachSegmentUse(trace_, code_, [&](size_t, uint32_t user, ValueId value) {
      needed[value] = needed[value] || (madeBy[value] != kOutside && madeBy[value] != user);
    });
    ir::ReachWalker frames(trace_);
    for (const uint32_t at : places_.framed) {
      Instruction ins = code_[at];
      ins.snap = graph_[at] != kOutside ? kOutside : ins.snap;  // of the graph: its operands alone
      frames.instruction(
          ins,
          [&](ValueId value) {
            const bool made = madeBy[value] != kOutside && trace_.values[value].kind != ir::TypeKind::kNone;
            needed[value] = needed[value] || made;
          },
          [](ir::SourceId) {});
    }
    return needed;
  }

  ir::Trace& trace_;
  std::vector<Instruction>& code_;
  const SegmentPlaces& places_;
  const std::vector<uint32_t>& graph_;
};

}  // namespace

void nameSegmentValues(ir::Trace& trace, std::vector<Instruction>& code, const SegmentPlaces& places) {
  Namer(trace, code, places).run();
}

}  // namespace kintsugi::passes
