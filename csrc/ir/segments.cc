#include "ir/segments.h"

#include "ir/reach.h"
#include "ir/segment_stops.h"

namespace kintsugi::ir {

namespace {

constexpr uint32_t kOutside = kNone;

class Checker {
 public:
  Checker(const Trace& trace, bool alone)
      : trace_(trace), alone_(alone), graphOf_(trace.values.size(), kOutside), stopOf_(graphOf_) {}

  std::vector<std::pair<size_t, std::string>> run() {
    for (size_t i = 0; i < trace_.code.size() && problems_.empty(); ++i) {
      instruction(i);
    }
    if (problems_.empty() && open_) {
      problem(begin_, "the segment has no end");
    }
    if (problems_.empty()) {
      checkOutputs();
    }
    return std::move(problems_);
  }

 private:
  void problem(size_t index, std::string message) { problems_.emplace_back(index, std::move(message)); }

  void instruction(size_t i) {
    const Instruction& ins = trace_.code[i];
    if (ins.op == Op::kSegment || ins.op == Op::kSegmentEnd) {
      mark(i, ins.op == Op::kSegment);
    } else if (!open_) {
      return;
    } else if (isInGraph(ins)) {
      graphInstruction(i);
    } else if (ins.op == Op::kInput) {
      stopOf_[ins.firstResult] = number_;
    } else if (!ins.deferrable && !isStop(ins) && ins.op != Op::kBuild && ins.op != Op::kGuardBlock) {
      problem(i, "may not stand inside a segment");
    }
  }

  void mark(size_t i, bool begins) {
    const Operand& list = trace_.operandsOf(trace_.code[i])[0];
    if (list.kind != OperandKind::kList) {
      problem(i, "names its values in a list");
      return;
    }
    for (const Operand& o : trace_.listOf(list)) {
      if (!o.isValue()) {
        problem(i, "names something that is no value");
        return;
      }
    }
    if (begins == open_) {
      problem(i, begins ? "a segment inside a segment" : "no segment begins before");
      return;
    }
    open_ = begins;
    std::vector<bool>& named = begins ? inputs_ : outputs_.emplace_back();
    named.assign(trace_.values.size(), false);
    for (const Operand& o : trace_.listOf(list)) {
      // A segment for training also keeps inputs for the backward.
      const bool given = alone_ && !begins && o.id < inputs_.size() && inputs_[o.id];
      named[o.id] = true;
      if (!begins && !given && graphOf_[o.id] != number_) {
        problem(i, "%" + std::to_string(o.id) + " is not made in the segment");
      }
    }
    begin_ = begins ? i : begin_;
    number_ += begins ? 0 : 1;
  }

  void graphInstruction(size_t i) {
    const Instruction& ins = trace_.code[i];
    std::vector<ValueId> used;
    if (ins.region == RegionMark::kNone) {
      collectValues(trace_, trace_.operandsOf(ins), used);
    }
    for (const ValueId value : used) {
      const bool given = inputs_[value] || stopOf_[value] == number_;
      if (trace_.values[value].kind != TypeKind::kNone && graphOf_[value] != number_ && !given) {
        problem(i, "%" + std::to_string(value) + " is no input of the segment");
        return;
      }
    }
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      graphOf_[ins.firstResult + r] = number_;
    }
  }

  void checkOutputs() {
    forEachSegmentUse(trace_, trace_.code, [this](size_t i, uint32_t user, ValueId value) {
      const uint32_t made = graphOf_[value];
      if (made != kOutside && made != user && !outputs_[made][value]) {
        problem(i, "uses %" + std::to_string(value) + ", which is no output of its segment");
      }
    });
  }

  const Trace& trace_;
  const bool alone_;
  std::vector<uint32_t> graphOf_;  // by value: the segment whose graph makes it
  std::vector<uint32_t> stopOf_;   // by value: the segment one of whose stops makes it
  std::vector<bool> inputs_;       // of the open segment
  std::vector<std::vector<bool>> outputs_;
  bool open_ = false;
  size_t begin_ = 0;
  uint32_t number_ = 0;
  std::vector<std::pair<size_t, std::string>> problems_;
};

}  // namespace

std::vector<SegmentRange> findSegments(const Trace& trace) {
  std::vector<SegmentRange> ranges;
  for (uint32_t i = 0; i < trace.code.size(); ++i) {
    if (trace.code[i].op == Op::kSegment) {
      ranges.push_back({i, i});
    } else if (trace.code[i].op == Op::kSegmentEnd && !ranges.empty()) {
      ranges.back().end = i;
    }
  }
  return ranges;
}

void forEachSegmentUse(const Trace& trace, std::span<const Instruction> code,
                       const std::function<void(size_t, uint32_t, ValueId)>& use) {
  // By segment, and the last for what is outside of all: (instruction, its operands alone).
  std::vector<std::vector<std::pair<size_t, bool>>> users(1);
  bool open = false;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].op == Op::kSegment) {
      users.insert(users.end() - 1, std::vector<std::pair<size_t, bool>>());
    }
    open = code[i].op == Op::kSegment || (open && code[i].op != Op::kSegmentEnd);
    if (open && code[i].op != Op::kSegment) {
      users[users.size() - 2].emplace_back(i, false);
    }
    if (code[i].op != Op::kSegmentEnd && (!open || !(isInGraph(code[i]) || isStop(code[i])))) {
      users.back().emplace_back(i, open);
    }
  }
  for (uint32_t who = 0; who < users.size(); ++who) {
    ReachWalker walker(trace);
    const uint32_t user = who + 1 == users.size() ? kNone : who;
    for (const auto& [index, operandsAlone] : users[who]) {
      Instruction ins = code[index];
      ins.snap = operandsAlone ? kNone : ins.snap;
      walker.instruction(
          ins, [&, at = index](ValueId value) { use(at, user, value); }, [](SourceId) {});
    }
  }
}

bool isGraphOp(Op op) { return op == Op::kAten || op == Op::kSetGrad || (op >= Op::kSize && op <= Op::kNot); }

void collectValues(const Trace& trace, std::span<const Operand> operands, std::vector<ValueId>& out) {
  for (const Operand& o : operands) {
    if (o.isValue()) {
      out.push_back(o.id);
    } else if (o.kind == OperandKind::kList) {
      collectValues(trace, trace.listOf(o), out);
    }
  }
}

std::vector<std::pair<size_t, std::string>> checkSegments(const Trace& trace, bool alone) {
  return Checker(trace, alone).run();
}

}  // namespace kintsugi::ir
