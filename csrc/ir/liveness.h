// Where each value of a trace is used last, so that whoever runs the trace can drop it there.
//
// A use is an operand, an element of a list or a part of a recipe among the operands (nested as deep as it
// goes), or a slot of the snapshot of an instruction that may exit or raise: the rebuilt frames need it. A
// source that is an opaque step's result uses it, and so does the guard block that begins at the result to
// resolve others. What was reached from it is held by itself from then on: a result that was a tuple may go
// while its items are named. A trace does not know sources: pass SourceRoots (guard::sourceRoots() makes
// them).
//
// Linear in the size of the trace: it walks backwards, so the first sight of a state or recipe is its last
// use. Plain data, owned by the caller, valid until the trace changes. No GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::ir {

struct Liveness {
  // By value: the index of the last instruction that uses it; where nothing does, of the one that defines it
  // (it dies at once); kNone for a number that no instruction defines.
  std::vector<uint32_t> lastUse;
};

// For each source, the value that its path starts at (kNone: it starts at an argument or a pinned object) and
// the guard block that resolves it.
struct SourceRoots {
  std::vector<ValueId> value;
  std::vector<uint32_t> block;
  std::vector<ValueId> itself;  // the value that the source is; kNone: it is reached from one, or from none
  std::vector<ValueId>
      resolver;  // the value that its block begins at; kNone: at a source of an earlier block
};

Liveness computeLiveness(const Trace& trace);
Liveness computeLiveness(const Trace& trace, const SourceRoots& roots);

}  // namespace kintsugi::ir
