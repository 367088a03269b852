// What autograd saves of an operator for its backward, as data: column KTG_SAVES of ops/operators.def. From
// it follow which writes between forward and backward are errors, and whether other memory (`weight.data =
// other`) is followed. tests/python/test_native_training_saved.py holds the rows against autograd's own
// nodes.
//
// A row is a text of entries, each a tensor that is kept: `r` (the result) or the number of an operand; then
// how, if it isn't the tensor itself; then, after a colon, operands: it is kept if one of them has a
// gradient.
//   KTG_SAVES("1 0:1")      div: the divisor always, the dividend for the gradient of the divisor
//   KTG_SAVES("1v:0")       a view of operand 1
//   KTG_SAVES("1w")         with as many dimensions as the result: itself if it has them, else a view
//   KTG_SAVES("0f:1")       as matrix products fold it: itself, a view or a copy (passes/kept_by_eager.h)
//   KTG_SAVES("3m")         itself, if it is no mask of bools (else a copy)
//   KTG_SAVES("0p")         of a pool to sizes (operand 1), unless all of them are 1: that is a mean
//   KTG_SAVES("0:0!")       by a node of its own, which runs for the gradients of those operands alone
//   KTG_SAVES("o")          a tensor of the node's own (statistics, a mask)
// Operators without an entry keep nothing. Those that are KTG_TAPED may have none either: autograd itself
// keeps and checks, and KTG_KEEPS_NOTHING says which ones keep nothing.
//
// Ownership: constants. Threads: any. No GIL. Nothing invalidates it.
#pragma once

#include <cstdint>
#include <span>

#include "ops/operator_id.h"

namespace kintsugi::ops {

struct Saved {
  static constexpr int8_t kResult = -1, kOwn = -2;
  enum class As : uint8_t { kItself, kView, kWidened, kFolded, kUnlessBools, kUnlessMean };

  int8_t what = kResult;  // an operand, the result, or a tensor of the node's own
  As as = As::kItself;
  uint16_t wanted = 0;  // operands, as bits; none: whatever has a gradient
  bool alone = false;   // by a node that runs for `wanted` alone
};

std::span<const Saved> savedBy(Operator op);

}  // namespace kintsugi::ops
