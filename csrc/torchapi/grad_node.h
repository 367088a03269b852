// The node that stands for a compiled segment in autograd's graph.
//
// Idea: a node keeps what the backward takes, watches what eager mode would keep (torchapi/kept_tensors.h),
// and runs compiled code. Where that can't be (a gradient of the gradient is asked for, or the gradients are
// not of the kind that the code was made for), the segment is run again from its inputs with autograd, which
// then differentiates it.
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

// What nodes of one segment have in common.
struct GradNodeForm : ir::KeptForm {
  std::vector<uint32_t> written = {};  // inputs that the segment writes to, and of which nothing depends
};

class GradNodeCode {
 public:
  explicit GradNodeCode(GradNodeForm form) : form_(std::move(form)) {}
  virtual ~GradNodeCode() = default;
  const GradNodeForm& form() const { return form_; }

  // Of which results somebody wants to know, and which tapes have to be run for them. Empty: all.
  struct Requested {
    std::vector<bool> gets;
    std::vector<bool> tapes;
  };

  // `values`: what was kept, then the gradients of the outputs that are followed; borrowed. Fills
  // `gradients`. Grad mode and autocast are off. False: it can't be done.
  virtual bool run(std::span<const Value> values, std::span<Value> gradients, uint64_t forwardTime,
                   const Requested& asked) const = 0;
  // Gradients that have not arrived are zeros, or (false) empty values.
  virtual bool takesZeros() const { return true; }
  // The segment once more, from inputs to outputs, in the present grad mode.
  virtual bool again(std::span<const Value> inputs, std::span<Value> outputs) const = 0;

 private:
  GradNodeForm form_;
};

// May a segment be run below autograd, with a node for all of it? Not where somebody watches what autograd
// keeps, or tangents are computed. Of this thread.
bool mayReplaceSegment();
// Has a tensor a tangent, of forward differentiation?
bool hasTangent(const void* impl);

// Gives `outputs` (new tensors; those that have a history of their own are replaced by others on the same
// memory) their place in autograd's graph. `own`: what is kept besides; taken over.
void attachGradNode(std::shared_ptr<const GradNodeCode> code, std::span<const Value> inputs,
                    std::span<Value> outputs, std::span<Value> own, uint64_t forwardTime);

// Grad mode off while one lives.
class GradModeOff {
 public:
  GradModeOff();
  ~GradModeOff();
  GradModeOff(const GradModeOff&) = delete;

 private:
  bool before_;
};

}  // namespace kintsugi::torchapi
