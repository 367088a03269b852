// Differentiates a segment: its forward and its backward as one graph, found by applying the derivative rule
// of each operator, from the results back to the inputs.
//
//   %2 = aten.sin.default %0             forward   ; %0 requires a gradient
//   %3 = aten.mul.Tensor %2, %1          forward   ; %1 does not; %3 is the output
//   %4 = (the gradient of %3)            incoming
//   %5 = aten.mul.Tensor %4, %1          backward  ; gradient of %2, by mul's rule
//   %6 = aten.cos.default %0             backward
//   %7 = aten.mul.Tensor %5, %6          backward  ; gradient of %0, by sin's rule: gradients = {%7, none}
//
// The graph consists of ATen's operators on values with known metadata. So each half can become a segment
// again (passes/split_gradients.h), which is compiled like any other (driver/native_training.h). Which values
// require a gradient was recorded with them.
//
// One node of autograd's stands for the segment. Its `outputs` are tensors that operators allocated. A view
// of one of these or of an input (or a conversion that converts nothing) that leaves the segment is not an
// output: the `epilogue` makes it after the node, by its own operator and with autograd, so that results are
// views as they are in eager mode.
//
// Tapes. An operator without a rule runs with autograd switched on: `taped.aten.conv2d.default` returns the
// operator's results and leaves that stand for its arguments. `taped.gradients [results], [leaves],
// [gradients]` runs that small autograd graph in the backward, and gives the gradients of the leaves.
//
// Writes. An in-place operator becomes a new value if nothing has read the value that it overwrites. A write
// to an input that requires no gradient (running statistics) becomes an output of the node, and is stored to
// the input at the end of the run (`stores`).
//
// Dropout is a product with a random mask. Masks are drawn before anything else runs, in the order of the
// operators, and are inputs after those of the segment.
//
// Pure function, no GIL.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/clamp_gradients.h"
#include "passes/segments.h"

namespace kintsugi::passes {

// An input that requires no gradient and that the segment writes to (running statistics, a counter). Its last
// content is an output of the node, and is stored to the input when all else is done.
struct InputStore {
  uint32_t input = 0;
  uint32_t output = 0;
  uint32_t times = 0;  // by how much the writes raise the input's version counter in eager mode
};

// Eager mode's node of an operator saves a tensor that the program can write to.
struct SavedByEager {
  ir::ValueId base = ir::kNone;       // the input or output that is saved, or whose view is
  std::vector<ir::ValueId> arriving;  // the gradients with which the node runs
  std::vector<ir::ValueId> followed;  // the operator's arguments that require a gradient
};

struct GradientGraph {
  // The instructions, without segment marks. They stand in the order in which they were made; the lists below
  // say in which order they run. The metadata of each tensor has its strides.
  ir::Trace trace;
  std::vector<uint32_t> forward;                         // instructions, in the order in which they run
  std::vector<uint32_t> backward;                        // likewise; may read values of the forward
  std::vector<ir::ValueId> inputs;                       // of the segment, then masks
  std::vector<double> maskProbabilities;                 // by mask: the probability of a one
  std::vector<ir::ValueId> outputs;                      // of the node
  std::vector<ir::ValueId> incoming;                     // by output: its gradient; kNone: it has none
  std::vector<ir::ValueId> gradients;                    // by input; kNone: it gets none
  std::vector<SavedByEager> saved;                       // in the order in which eager mode's nodes run
  std::vector<std::pair<uint32_t, SavedByEager>> tapes;  // by instruction of the backward; without a base
  std::vector<SavedByEager> holders;  // nodes of eager mode's that keep any tensor; without a base
  // (placeholder, value): `value` is an input or output that eager mode saves as an object. The placeholder
  // is its content in the memory that it has when the backward runs; in the backward, `value` is the memory
  // that it had in the forward.
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
  ops::ClampGradients clamps;
};

// A copy of some of a trace's instructions, with marks around them, as a trace that is one segment.
ir::Trace segmentOf(const ir::Trace& trace, const std::vector<ir::ValueId>& inputs,
                    const std::vector<uint32_t>& code, const std::vector<ir::ValueId>& outputs);

// Does a result of the instruction require a gradient, as far as the trace's types say?
bool isFollowed(const ir::Trace& trace, const ir::Instruction& ins);
// Does anything that the segment makes require a gradient?
bool needsGradients(const ir::Trace& segment);

// For logs: the forward and then the backward as one segment, which takes the gradients of the outputs too
// and gives the gradients of the inputs too.
std::string print(const GradientGraph& graph);

// `segment`: as passes/extract_segment.h makes it. Returns nullopt if it can't be differentiated; `reason`
// then says why. The graph of a segment that only makes views has no outputs.
std::optional<GradientGraph> differentiate(const ir::Trace& segment, const GradientOptions& options,
                                           std::string& reason);

}  // namespace kintsugi::passes
