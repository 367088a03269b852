// Pass segments: cuts a trace into maximal segments, the pieces that a backend compiles (ir/segments.h).
//
// A segment holds operators, sizes, scalar arithmetic and changes of the grad mode. What ends one: a guard
// that may fail, an opaque call, an effect that is not marked deferrable, an operator whose result depends on
// data, one that gives as many tensors as data says (passes/size_decisions.h), the end. A deferrable effect
// (a `print`, a counter) stays inside and runs after the graph, unless the graph writes to what is older than
// it: after an exception in the graph, its instructions are run one by one, which must have the same effect
// as if the graph had never run. Random numbers are drawn again then (runtime/run_segments.cc). `input`s move
// before the segment that they interrupt.
//
// Native code writes to tensors of the program at the very end of a run. So for native code:
//   - operators that write in ways that it does not know stay outside;
//   - a segment ends before an operator that reads a tensor after a part of it was written, and before a
//     write to a view whose place differs from run to run;
//   - writes to tensors that the segment has made stay inside if they can become new values
//     (passes/own_writes.h);
//   - guards of metadata that native code checks anyway stay inside, and so may an item() that operators
//     compute with;
//   - if gradients are required, a segment ends after a tensor that the program sees and before what is
//     made of it (passes/seen_values.h), and once for each bucket of gradients (passes/gradient_cuts.h).
//
// A region of the program (passes/regions.h) is inside a graph with both ends, or stays outside with all that
// it holds. Native code takes the operations between the ends.
//
// The IR does not know what operators do: SegmentOptions::traits says it. Run on request, for callables
// with a backend of their own; not part of the default pipeline. Linear in the size of the trace, times the
// segments. No GIL.
#pragma once

#include <string_view>

#include "guard/document.h"
#include "ir/segments.h"

namespace kintsugi::passes {

// What an operator of the dispatcher does, as far as cutting needs to know.
struct OperatorTraits {
  bool inGraph = true;         // may be part of a graph
  bool sizesOfData = false;    // no graph for native code: its result's sizes depend on data
  bool sizesFromMask = false;  // its result's sizes depend on data if an index is a mask
  bool impure = false;         // writes to its arguments or draws random numbers
  bool writes = false;         // to arguments that its schema names
  bool draws = false;          // random numbers, and does nothing else
  bool drawsInto = false;      // random numbers, and writes them to arguments that its schema names
  bool fresh = false;          // its results never share memory with its arguments
  bool countOfSizes = false;   // how many tensors it gives may follow from sizes
  bool replayed = false;       // no part of native code: exchanges data with other processes, or runs Python
};
using OperatorTraitsFn = OperatorTraits (*)(std::string_view opName);
// From the registry and from names of ATen's operators. Enough for tests; the driver asks the dispatcher.
OperatorTraits traitsByName(std::string_view opName);

struct SegmentOptions {
  OperatorTraitsFn traits = traitsByName;
  uint32_t start = 0;  // a side trace begins here: its parent's instructions are left as they are
  bool native = false;
  ir::GradientLimits gradients = {};  // for native code
};

// An item() of a tensor of one number, of a type that native code computes with. Native segments may have it
// inside, unless autograd follows something there.
bool readsNumber(const ir::Trace& trace, const ir::Instruction& ins);

// Returns where the part that was cut begins: at `start`, or one before it if a mark of the parent was
// removed.
uint32_t cutSegments(guard::Document& document, const SegmentOptions& options);

}  // namespace kintsugi::passes
