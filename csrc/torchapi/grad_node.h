// The node that stands for a compiled segment in autograd's graph.
//
// A node keeps what the backward takes, watches what eager mode would keep (torchapi/kept_tensors.h), and
// runs compiled code. Sometimes it can't: a gradient of the gradient is asked for, or the gradients are of
// another kind than the code was made for. Then the segment is run again from its inputs with autograd, which
// differentiates it.
//
// Ownership: a node shares its code. Threads: autograd runs a node on any; one run at a time. GIL: must not
// be held while a node runs; attach needs none. Invalidation: none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/kept_form.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

// What all nodes of one segment have in common.
struct GradNodeForm : ir::KeptForm {
  // Inputs that the segment writes to and on which no gradient depends.
  std::vector<uint32_t> written = {};
};

class GradNodeCode {
 public:
  explicit GradNodeCode(GradNodeForm form) : form_(std::move(form)) {}
  virtual ~GradNodeCode() = default;
  const GradNodeForm& form() const { return form_; }

  // The results that are asked for, and the tapes that have to be run for them. Empty: all.
  struct Requested {
    std::vector<bool> gets;
    std::vector<bool> tapes;
  };

  // `values`: what was kept, then the gradients of the outputs that autograd follows; borrowed. Fills
  // `gradients`. Grad mode and autocast are off. False: the code can't be run.
  virtual bool run(std::span<const Value> values, std::span<Value> gradients, uint64_t forwardTime,
                   const Requested& asked) const = 0;
  // Missing gradients are passed as zeros, or, if this is false, as empty values.
  virtual bool takesZeros() const { return true; }
  // Runs the segment again, from inputs to outputs, in the current grad mode.
  virtual bool recompute(std::span<const Value> inputs, std::span<Value> outputs) const = 0;

 private:
  GradNodeForm form_;
};

// True if a segment may be run below autograd, with one node for all of it. False if somebody watches what
// autograd keeps, or if tangents are computed. For this thread.
bool mayReplaceSegment();
// True if the tensor has a tangent, of forward-mode differentiation.
bool hasTangent(const void* impl);

// Adds `outputs` to autograd's graph. They are new tensors; one that has a history is replaced by another
// tensor on the same memory. `own`: what else is kept; taken over.
void attachGradNode(std::shared_ptr<const GradNodeCode> code, std::span<const Value> inputs,
                    std::span<Value> outputs, std::span<Value> own, uint64_t forwardTime);

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
