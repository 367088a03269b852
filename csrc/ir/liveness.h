// Where each value of a trace is used last, so that whoever runs the trace can drop it there.
//
// A use is an operand, an element of a list or a part of a recipe among the operands (nested as deep as it
// goes), or a slot of the snapshot of an instruction that may exit or raise: the rebuilt frames need it. A
// source that is reached from an opaque step's result uses that result too, but a trace does not know
// sources: pass SourceRoots (guard::sourceRoots() makes them) to count those uses.
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
};

Liveness computeLiveness(const Trace& trace);
Liveness computeLiveness(const Trace& trace, const SourceRoots& roots);

}  // namespace kintsugi::ir
