// Segments: the parts of a trace that a backend compiles as one piece each. See docs/internals/ir.md.
//
//   segment [%0, %1]                            the graph's inputs
//   %2 = aten.mul.Tensor %0, %1 : tensor snap !0
//   call.known #1, "product" deferrable : object snap !1     no part of the graph: runs after it
//   %4 = aten.relu.default %2 : tensor snap !2
//   segment.end [%4]                            the graph's outputs
//
// There are two ways to run a segment, with equal results: its instructions one by one, as if the two marks
// were not there; or the graph as a whole, from inputs to outputs, and then the instructions that are not
// part of the graph, in order. Plain functions, no state, no GIL.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::ir {

// Indices into Trace::code of `segment` and its `segment.end`.
struct SegmentRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// About how many bytes of gradients of parameters one group may have: the first group, and each other one. 0:
// gradients need not arrive in groups.
struct GradientLimits {
  int64_t first = 0;
  int64_t rest = 0;
};

// In order; for traces that the verifier accepts.
std::vector<SegmentRange> findSegments(const Trace& trace);

// Calls use(index, segment, value) for each value that an instruction of `code` (of `trace`, with marks)
// uses. `segment` is the number of the segment that the use is internal to; kNone: to none. A value that a
// segment's graph makes has to be an output if it has a use that is not internal to the segment. Internal
// uses are the operands of the graph, and the snapshots of all instructions between the marks: to leave
// there, missing values are computed by running instructions of the graph.
void forEachSegmentUse(const Trace& trace, std::span<const Instruction> code,
                       const std::function<void(size_t, uint32_t, ValueId)>& use);

// A call that only looks up what is there already: a hit in a cache. It may be deferred, never raises, and
// changes nothing that the program reads through the trace. So it has no snapshot.
inline bool isLookup(const Instruction& ins) {
  return ins.op == Op::kCallKnown && ins.deferrable && ins.snap == kNone;
}
// May an operation be part of a segment's graph? Operators of the dispatcher, sizes, scalar arithmetic, grad
// mode.
bool isGraphOp(Op op);
// Does it check a number or a tensor of the run?
inline bool isGuardOfValue(Op op) {
  return op == Op::kGuardTrue || op == Op::kGuardFalse || op == Op::kGuardValue || op == Op::kGuardMeta;
}
// Is an instruction between the marks part of the graph? Scalars that only effects need are not: they are
// deferrable. A guard that is not deferrable is: the backend checks what it says. So are the ends of regions,
// whose operands the graph does not need.
inline bool isInGraph(const Instruction& ins) {
  return ((isGraphOp(ins.op) || isGuardOfValue(ins.op)) && !ins.deferrable) ||
         ins.region != RegionMark::kNone;
}

// The values among the operands, those in lists included.
void collectValues(const Trace& trace, std::span<const Operand> operands, std::vector<ValueId>& out);

// The problems of a trace's segments, as pairs (index of the instruction, message). Tables and definitions of
// the trace have to be valid. `alone`: the trace is one segment by itself, whose outputs may be inputs.
std::vector<std::pair<size_t, std::string>> checkSegments(const Trace& trace, bool alone = false);

}  // namespace kintsugi::ir
