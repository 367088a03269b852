// The nodes that stand for a compiled segment in autograd's graph.
//
// They save the tensors that the backward needs, check the version counters of tensors that eager mode would
// save (torchapi/kept_tensors.h), and run compiled code. The code can't be used for a gradient of a gradient,
// nor for gradients of another dtype or layout than it was made for. Then the segment is run again from its
// inputs with autograd, which differentiates it (torchapi/segment_gradients.h).
//
// If one operator makes all outputs of a segment, the segment is one node. Otherwise there are two kinds of
// nodes. An output node stands for an operator that makes outputs; it has the hooks that the operator's node
// has in eager mode. An input node passes gradients on to inputs; it stands for all inputs that are reached
// from the same outputs.
//
//   a = x.sin()          a ─▶ output node ─▶ input node of x
//   b = x.cos() * w      b ─▶ output node ─▶ input node of x
//                                         ─▶ input node of w
//
// So autograd reaches the inputs that it reaches in eager mode, and calls the hooks of outputs in its order.
// The first input node that runs computes all gradients; each passes on those of its inputs.
//
// Ownership: nodes share their code. Threads: autograd runs a node on any; one run at a time. GIL: must not
// be held while a node runs; attach needs none. Invalidation: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/kept_form.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

// What all nodes of one segment have in common.
struct GradNodeForm : ir::KeptForm {
  // Inputs that the segment writes to and on which no gradient depends.
  std::vector<uint32_t> written = {};

  // The set of one output.
  uint64_t bitOf(size_t output) const { return isByOutput ? uint64_t{1} << output : kAll; }
};

// The nodes of a segment, and their ranks: autograd runs the node with the highest rank first. Ranks follow
// the order of the program, so that nodes run in the reverse order, as in eager mode.
struct NodePlan {
  // The rank of an input node in a backward in which one of these outputs has a gradient.
  struct RankIf {
    uint64_t outputs = GradNodeForm::kAll;
    uint32_t rank = 0;

    bool operator==(const RankIf&) const = default;
  };
  struct InputNode {
    uint64_t outputs = GradNodeForm::kAll;  // the outputs from which its inputs are reached
    std::vector<uint32_t> gets;             // the results of the backward that it passes on
    std::vector<RankIf> ranks;              // the first one that applies holds
    // Set if the program made a view of one of its inputs, a result of the epilogue, before it used that
    // input otherwise. Eager mode runs the view's node after this one, so this rank is above the view's.
    std::optional<uint32_t> earlyRank = {};
  };
  struct OutputNode {
    std::vector<uint32_t> outputs;  // of those that autograd follows
    uint32_t rank = 0;
    bool runsAfterInputs = false;  // eager mode computes gradients of some inputs before it runs this node
  };
  // The node of a tensor that the epilogue makes, a view of an input or output. Autograd itself made it.
  struct EpilogueNode {
    uint32_t rank = 0;
    bool runsAfterInputs = false;
  };
  std::vector<InputNode> inputNodes;    // by rank
  std::vector<OutputNode> outputNodes;  // by rank
  std::vector<EpilogueNode> epilogueNodes;
  uint32_t rankCount = 0;
  bool reorders = false;  // the program makes some result of the epilogue before an output

  explicit NodePlan(const GradNodeForm& form);
  bool isSingle() const { return isSingle_; }
  // How many sequence numbers are below those of the ranks: one for each input node.
  size_t lowNumbers() const { return isSingle_ ? 0 : inputNodes.size(); }

 private:
  // An operator whose result the program can observe: an output, or a tensor of the epilogue.
  struct Observed {
    uint32_t at = 0;  // its place in the program
    bool isEpilogue = false;
    uint32_t index = 0;  // into outputNodes or epilogueNodes
  };
  void addOutputNodes(const GradNodeForm& form);
  void addInputNodes(const GradNodeForm& form, const std::vector<Observed>& observed);
  void rankAll(const std::vector<Observed>& observed);

  bool isSingle_ = false;
};

class GradientLayouts;

class GradNodeCode {
 public:
  // `layouts`: the layouts of eager mode's gradients of the segment, as far as known; its codes share them.
  GradNodeCode(GradNodeForm form, std::shared_ptr<GradientLayouts> layouts)
      : form_(std::move(form)), nodes_(form_), layouts_(std::move(layouts)) {}
  virtual ~GradNodeCode() = default;
  GradientLayouts& layouts() const { return *layouts_; }
  const GradNodeForm& form() const { return form_; }
  const NodePlan& nodes() const { return nodes_; }

  // The results of the backward that are asked for, and the tapes that they depend on. Empty: all.
  struct Requested {
    std::vector<bool> gets;
    std::vector<bool> tapes;
  };

  // `values`: the saved tensors, then the gradients of the outputs that autograd follows; borrowed. Fills
  // `gradients`. Grad mode and autocast are off. False: the code can't be run.
  virtual bool run(std::span<const Value> values, std::span<Value> gradients, uint64_t forwardTime,
                   const Requested& asked) const = 0;
  // The code is autograd's own. Missing gradients are empty values for it, zeros for other code.
  virtual bool isAutograd() const { return false; }
  // Runs the segment again, from inputs to outputs, in the current grad mode.
  virtual bool recompute(std::span<const Value> inputs, std::span<Value> outputs) const = 0;
  // Runs the operators whose gradients need no saved tensor (passes/free_gradients.h), on new tensors, in the
  // current grad mode. Fills `leaves` (by result of the backward; empty: no gradient reaches it) and the
  // outputs that autograd follows. False: there are no such operators.
  virtual bool runFree(std::span<Value> leaves, std::span<Value> outputs) const = 0;

 private:
  GradNodeForm form_;
  NodePlan nodes_;
  std::shared_ptr<GradientLayouts> layouts_;
};

// Without any layout yet.
std::shared_ptr<GradientLayouts> newGradientLayouts();

// True if a segment may be run below autograd, with nodes of ours. False if hooks for saved tensors are set,
// anomalies are detected, or inference mode is on. For this thread.
bool mayReplaceSegment();
// True if the tensor is a leaf with a hook, which runs when its gradient is there.
bool hasLeafHooks(const void* impl);
// True if the tensor is a leaf that autograd follows.
bool isFollowedLeaf(const void* impl);
// True if the tensor has a tangent, of forward-mode differentiation.
bool hasTangent(const void* impl);

class SegmentGradients;
// The nodes of a run.
struct AttachedNodes {
  std::shared_ptr<SegmentGradients> shared;
  uint64_t first = 0;  // number of the first one
};

// Adds `outputs` to autograd's graph. They are new tensors; one that has a history is replaced by another
// tensor on the same memory. `own`: the other tensors that are saved; this takes them over.
AttachedNodes attachGradNode(std::shared_ptr<const GradNodeCode> code, std::span<const Value> inputs,
                             std::span<Value> outputs, std::span<Value> own, uint64_t forwardTime);

// Gives the nodes of the epilogue's tensors their ranks, so that they run when eager mode runs them. To be
// constructed before the epilogue runs; call end() after it, with the tensors that it made.
class EpilogueOrder {
 public:
  EpilogueOrder(const GradNodeCode& code, const AttachedNodes& nodes);
  void end(std::span<const Value> inputs, std::span<const Value> results) const;

 private:
  const NodePlan& plan_;
  const AttachedNodes& nodes_;
  const uint64_t next_;
};

// Switches grad mode off during its lifetime.
class GradModeOff {
 public:
  GradModeOff();
  ~GradModeOff();
  GradModeOff(const GradModeOff&) = delete;

 private:
  bool before_;
};

}  // namespace kintsugi::torchapi
