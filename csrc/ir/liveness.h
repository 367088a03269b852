// Liveness: the last use of each value of a trace, so that a run can drop the value there.
//
// A value is used by an instruction that has it among its operands, inside their lists or recipes (at any
// depth), or in the slots of its snapshot if it may exit or raise, because the rebuilt frames need it. The
// result of an opaque step is also used by the sources that are resolved from it, and by the guard block that
// resolves them. These sources hold their own objects afterwards: a result that was a tuple may be dropped
// while its items are in use. Traces know nothing of sources, so pass them as SourceRoots
// (guard::sourceRoots() computes them).
//
//   %1 = call #0, %0        used last by guard block 1, which resolves $2 = tuple %1 [0]
//   guard.block 1           %1 is dropped here; $2 is held
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
