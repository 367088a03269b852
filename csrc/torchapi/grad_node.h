// The nodes that stand for a compiled segment in autograd's graph.
//
// They keep what the backward takes, watch what eager mode would keep (torchapi/kept_tensors.h), and run
// compiled code. Sometimes that can't be: a gradient of the gradient is asked for, or the gradients are of
// another kind than the code was made for. Then the segment is run again from its inputs with autograd, which
// differentiates it (torchapi/segment_gradients.h).
//
// A segment whose outputs one operator makes is one node. Otherwise what an operator gives out has a node,
// whose hooks are those of eager mode's, and the inputs are behind gates: one for all inputs that the same
// outputs lead to.
//
//   a = x.sin()          a ─▶ node ─▶ gate of x
//   b = x.cos() * w      b ─▶ node ─▶ gate of x
//                                  ─▶ gate of w
//
// So autograd reaches the inputs that it reaches in eager mode, and calls the hooks of outputs in its order.
// The first gate that runs computes all gradients; each hands out those of its inputs.
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

// The nodes of a segment. Eager mode runs backwards from the highest rank to the lowest.
struct NodePlan {
  // Where a gate comes if gradients of these outputs are there: the first place that fits holds.
  struct Place {
    uint64_t outputs = GradNodeForm::kAll;
    uint32_t rank = 0;

    bool operator==(const Place&) const = default;
  };
  struct Gate {
    uint64_t outputs = GradNodeForm::kAll;  // those that lead to its inputs
    std::vector<uint32_t> gets;             // results of the backward
    std::vector<Place> places;
    // Where it comes in any case, if it comes before something that looks at one of its inputs.
    std::optional<uint32_t> early = {};
  };
  struct Maker {
    std::vector<uint32_t> outputs;  // of those that autograd follows
    uint32_t rank = 0;
    bool hasGatesBefore = false;  // eager mode has inputs' gradients before it comes to this operator
  };
  std::vector<Gate> gates;    // by rank
  std::vector<Maker> makers;  // by rank
  struct Look {
    uint32_t rank = 0;
    bool hasGatesBefore = false;
  };
  std::vector<Look> looks;  // what is made behind the nodes
  uint32_t ranks = 0;
  bool reorders = false;  // something that is made behind the nodes comes before one of them in the program

  explicit NodePlan(const GradNodeForm& form);
  bool isSingle() const { return isSingle_; }
  // How many numbers come before those of the ranks.
  size_t lowNumbers() const { return isSingle_ ? 0 : gates.size(); }

 private:
  // An operator that something seen is of; backwards, eager mode comes to the last one first.
  struct Seen {
    uint32_t at = 0;
    bool isLook = false;
    uint32_t index = 0;
  };
  void addMakers(const GradNodeForm& form);
  void addGates(const GradNodeForm& form, const std::vector<Seen>& seen);
  void rankAll(const std::vector<Seen>& seen);

  bool isSingle_ = false;
};

class GradientLayouts;

class GradNodeCode {
 public:
  // `layouts`: what is known of eager mode's gradients of the segment; its codes share it.
  GradNodeCode(GradNodeForm form, std::shared_ptr<GradientLayouts> layouts)
      : form_(std::move(form)), nodes_(form_), layouts_(std::move(layouts)) {}
  virtual ~GradNodeCode() = default;
  GradientLayouts& layouts() const { return *layouts_; }
  const GradNodeForm& form() const { return form_; }
  const NodePlan& nodes() const { return nodes_; }

  // The results that are asked for, and the tapes that have to be run for them. Empty: all.
  struct Requested {
    std::vector<bool> gets;
    std::vector<bool> tapes;
  };

  // `values`: what was kept, then the gradients of the outputs that autograd follows; borrowed. Fills
  // `gradients`. Grad mode and autocast are off. False: the code can't be run.
  virtual bool run(std::span<const Value> values, std::span<Value> gradients, uint64_t forwardTime,
                   const Requested& asked) const = 0;
  // The code is autograd's own. Missing gradients are empty values for it, zeros for other code.
  virtual bool isAutograd() const { return false; }
  // Runs the segment again, from inputs to outputs, in the current grad mode.
  virtual bool recompute(std::span<const Value> inputs, std::span<Value> outputs) const = 0;
  // Runs what does not depend on anything that is kept, on new tensors, in the current grad mode. Fills
  // `leaves` (by result of the backward; empty: nothing leads there) and the outputs that autograd follows.
  // False: there is nothing of the kind.
  virtual bool runFree(std::span<Value> leaves, std::span<Value> outputs) const = 0;

 private:
  GradNodeForm form_;
  NodePlan nodes_;
  std::shared_ptr<GradientLayouts> layouts_;
};

// Nothing is known yet.
std::shared_ptr<GradientLayouts> newGradientLayouts();

// True if a segment may be run below autograd, with one node for all of it. False if somebody watches what
// autograd keeps, or if tangents are computed. For this thread.
bool mayReplaceSegment();
// True if the tensor is a leaf whose gradient a hook gets to see when it is there.
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
// tensor on the same memory. `own`: what else is kept; taken over.
AttachedNodes attachGradNode(std::shared_ptr<const GradNodeCode> code, std::span<const Value> inputs,
                             std::span<Value> outputs, std::span<Value> own, uint64_t forwardTime);

// What is made behind the nodes gets its place in eager mode's order. Made before, and ended when all is
// made.
class LookOrder {
 public:
  LookOrder(const GradNodeCode& code, const AttachedNodes& nodes);
  void end(std::span<const Value> inputs, std::span<const Value> looks) const;

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
