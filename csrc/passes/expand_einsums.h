// Einsums become the operators that ATen runs for them, so that they have derivatives, and kernels.
//
//   %2 = aten.einsum.default "bij,bkj->bik", [%0, %1], none
//   =>
//   %3 = aten.permute.default %1, [0, 2, 1]
//   %4 = aten.bmm.default %0, %3
//   %2 = aten.view.default %4, [2, 5, 7]
//
// Works on a segment (passes/extract_segment.h), before anything is asked of it. Two operands are contracted
// at a time, from the first on: labels that only one of them has, and nobody else wants, are summed; those
// that both have, and nobody else wants, are what a matrix product sums over; those that both have, and that
// are wanted, number the matrices. Without labels to sum over it is a multiplication.
//
// An einsum stays as it is where sizes are not fixed, or are 0 or 1, which ATen broadcasts; where a label is
// twice in an operand, an ellipsis is summed over, or a path is given; and where the result would not lie in
// memory as it did when it was recorded. Results have the bits of ATen's. Pure function, no GIL.
#pragma once

#include "ir/trace.h"

namespace kintsugi::passes {

// False: nothing has changed.
bool expandEinsums(ir::Trace& segment);

}  // namespace kintsugi::passes
