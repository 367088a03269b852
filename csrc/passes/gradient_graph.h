// The forward and the backward of a segment as one graph: derivatives of its operators, found from the
// results back to the inputs.
//
// Idea: everything stays in terms of ATen's operators and of values whose metadata is known, so that each
// half is a segment again, and is compiled as any other (driver/native_training.h). Which values autograd
// follows was recorded with them. The node that stands for the segment in autograd's graph gives out
// `outputs`: what operators created. What only looks at them or at inputs (views, conversions that convert
// nothing) and leaves the segment is made by its operator after the node, by `epilogue`, with autograd's
// part: results are the views that eager mode gives.
//
// Some operators have no rule here; they are run with autograd in a graph of their own, which the backward
// runs through: `taped.aten.conv2d.default` returns the operator's results and the leaves that stand for its
// arguments, `taped.gradients [results], [leaves], [gradients]` the gradients of the leaves.
//
// In-place operators become new values where nothing has looked at what they write to. What is written to
// inputs that autograd does not follow (`stores`) is stored by who runs the graph, at the very end.
//
// Dropout is a product with a mask. Masks are drawn before anything else runs, in the order of the operators,
// and are inputs after those of the segment.
//
// Pure function, no GIL.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/segments.h"

namespace kintsugi::passes {

// Running statistics, counters: inputs that autograd does not follow and that the segment only writes to.
// What they hold in the end is an output of the node, and is stored when all else is done.
struct InputStore {
  uint32_t input = 0;
  uint32_t output = 0;
  uint32_t times = 0;  // how often eager mode counts a write to it
};

// Eager mode's node of an operator keeps a tensor that others can write to.
struct SavedByEager {
  ir::ValueId base = ir::kNone;       // an input or an output
  std::vector<ir::ValueId> arriving;  // the gradients with which the node runs
  std::vector<ir::ValueId> followed;  // the operator's arguments that autograd follows
};

struct GradientGraph {
  // All instructions in no order, without marks; metadata says all strides.
  ir::Trace trace;
  std::vector<uint32_t> forward;                         // instructions, in order
  std::vector<uint32_t> backward;                        // likewise; may use values of the forward
  std::vector<ir::ValueId> inputs;                       // of the segment, then masks
  std::vector<double> draws;                             // by mask: the probability of a one
  std::vector<ir::ValueId> outputs;                      // of the node
  std::vector<ir::ValueId> incoming;                     // by output: its gradient; kNone: it has none
  std::vector<ir::ValueId> gradients;                    // by input; kNone: it gets none
  std::vector<SavedByEager> saved;                       // in the order in which eager mode's nodes run
  std::vector<std::pair<uint32_t, SavedByEager>> tapes;  // by instruction of the backward; without a base
  std::vector<SavedByEager> holders;  // nodes of eager mode's that keep any tensor; without a base
  // What stands in the backward for an input or output that eager mode keeps itself, in the memory that it
  // has by then: (stand-in, value). The value itself means the memory of the forward.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> now;
  // Leaves of tapes, and the inputs and outputs that they stand for.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> leaves;
  std::vector<InputStore> stores;
  std::vector<uint32_t> epilogue;    // instructions, in order, changes of the grad mode among them
  std::vector<ir::ValueId> results;  // of the segment: inputs, outputs and what the epilogue makes
  ir::Trace recompute;               // a segment: from the inputs to the outputs, as it was recorded
  std::vector<uint32_t> program;     // its instructions, in `trace`
  std::optional<bool> gradBefore;    // the grad mode that the segment has to start in ...
  std::optional<bool> gradAfter;     // ... and leaves, where it sets one
};

struct GradientOptions {
  OperatorTraitsFn traits = traitsByName;
};

// A segment of a trace's instructions, which are left as they are.
ir::Trace segmentOf(const ir::Trace& trace, const std::vector<ir::ValueId>& inputs,
                    const std::vector<uint32_t>& code, const std::vector<ir::ValueId>& outputs);

// Does autograd follow what an instruction of the trace makes, as far as its types say?
bool isFollowed(const ir::Trace& trace, const ir::Instruction& ins);
// ... anything that the segment makes?
bool needsGradients(const ir::Trace& segment);

// `segment`: by passes/extract_segment.h. Without a graph, `reason` says why. A graph without outputs is that
// of a segment that only looks at tensors.
std::optional<GradientGraph> differentiate(const ir::Trace& segment, const GradientOptions& options,
                                           std::string& reason);

}  // namespace kintsugi::passes
