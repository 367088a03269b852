// A convolution together with a batch norm, a residual and an activation, by the library's own fused operator
// on a weight that was packed before (passes/fold_convolutions.h).
//
// The packed weight is computed from parameters and buffers. These may change in ways that version counters
// do not show: through `.data`, through NumPy, running statistics in a training step. So each run hashes
// their bytes (support/content_hash.h) and packs again if the hash differs. Results have the channels last.
//
// Ownership: owns the packed weight; borrows arguments for a run. Threads: any number at once; no GIL.
// Invalidation: none.
#pragma once

#include <memory>
#include <string>

#include "ir/trace.h"
#include "torchapi/aten_call.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

// True if this build of torch has the operators, and its settings allow them.
bool hasFoldedConvolutions();

// The operands of a `folded.convolution`. Values are slots.
struct ConvolutionForm {
  uint32_t input = ir::kNone, weight = ir::kNone, bias = ir::kNone;
  uint32_t scale = ir::kNone, shift = ir::kNone, mean = ir::kNone, variance = ir::kNone;  // of the batch norm
  uint32_t added = ir::kNone;
  uint32_t result = ir::kNone;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  double epsilon = 0;
  std::string activation;
  double slope = 0;
};

class FoldedConvolution {
 public:
  explicit FoldedConvolution(ConvolutionForm form);
  ~FoldedConvolution();
  AtenCall::Status run(Value* values) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::torchapi
