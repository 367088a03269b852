// Cuts the joint graph of a segment into what runs forward and what runs backward, and chooses what is kept
// from one to the other.
//
// Idea: what the backward takes from the forward is kept or computed again. Values that operators of the
// backward take as whole tensors are kept; what kernels read is chosen by a minimum cut between what can't be
// computed again cheaply (inputs, results of calls and reductions) and the backward, weighed by bytes: never
// more than eager mode keeps. Inputs and results of the segment are kept only where eager mode keeps them,
// since a write to what is kept is an error of the backward. Views are never kept, but what they look at.
//
// Pure function, no GIL.
#pragma once

#include "passes/gradient_graph.h"

namespace kintsugi::passes {

struct TrainingSegments {
  struct Kept {
    enum class From : uint8_t { kInput, kOutput, kOwn };
    From from = From::kOwn;
    uint32_t index = 0;  // kOwn: counted behind the outputs of `forward`
  };
  // Where a result of the segment comes from.
  struct Result {
    enum class From : uint8_t { kInput, kOutput, kEpilogue };
    From from = From::kOutput;
    uint32_t index = 0;
  };

  ir::Trace forward;       // the inputs of the segment; gives the node's outputs, then what is kept
  ir::Trace backward;      // what is kept, then the gradients that arrive; gives those of inputs
  ir::Trace epilogue;      // inputs of the segment, then the node's outputs
  std::vector<Kept> kept;  // by input of `backward`, the first ones
  // Inputs and outputs that eager mode keeps and the backward does not take: a write to them is an error,
  // too.
  std::vector<Kept> watched;
  std::vector<uint32_t> byView;  // inputs that eager mode keeps as views alone
  std::vector<uint32_t> asIs;    // ... and those that it keeps themselves
  // Which gradients matter for what, as bits: outputs that have one, in order. All empty where there are more
  // than 64.
  std::vector<uint64_t> feeds;  // by `gets`: the outputs that this input's gradient depends on
  std::vector<uint64_t>
      together;  // by output: those whose gradients share something that is taken of the forward
  std::vector<uint64_t> keptFor;     // by `kept`: the outputs whose gradients need it
  std::vector<uint64_t> watchedFor;  // by `watched`: likewise
  bool hasTapes = false;             // some operators are differentiated by autograd, in graphs of their own
  std::vector<bool> follows;         // by output of the node: it has a gradient, which arrives in order
  std::vector<uint32_t> gets;        // by output of `backward`: which input's gradient it is
  std::vector<Result> results;
  std::optional<bool> gradBefore;  // the grad mode that the segment has to start in
};

TrainingSegments splitGradients(const GradientGraph& graph);

}  // namespace kintsugi::passes
