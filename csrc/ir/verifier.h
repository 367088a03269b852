// Is a trace well formed? Checks what everyone who runs or rewrites traces relies on, and says what is wrong
// where.
//
//   all modes    operands fit ops.def and lie in their tables; values are defined once and before their uses
//                (also through lists, recipes and snapshots); instructions that may exit or raise have a
//                snapshot; the frames of an exit can be rebuilt; parents of frame states form no cycle; there
//                is one `ret`, at the end
//   kRecorded    what the recorder wrote: values are numbered in the order of their definitions
//   kContinued   a side trace as the recorder wrote it, after what passes have left of the trace before it:
//                segments are not cut again yet
//   kOptimized   what passes may leave: any numbering, unused rows
//   kSegment     a segment alone (passes/extract_segment.h): a `segment` whose operands are its inputs, what
//                is part of its graph, `segment.end`; no snapshots
//
// guard/verifier.h checks a whole document, sources and guards included. Linear in the size of the trace.
// Borrows the trace; no state, no GIL.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::ir {

enum class VerifierMode : uint8_t { kRecorded, kContinued, kOptimized, kSegment };

// What is wrong, and in which row: `%2 = aten.relu.default %9 : tensor`, `snap !3`.
struct Problem {
  std::string place;
  std::string message;

  std::string format() const { return place + ": " + message; }
};

// Empty: the trace is valid. Stops looking after some problems, since one mistake may show at every
// instruction.
std::vector<Problem> verify(const Trace& trace, VerifierMode mode);

// One problem a line; empty for none.
std::string formatProblems(std::span<const Problem> problems);

}  // namespace kintsugi::ir
