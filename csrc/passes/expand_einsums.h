// Einsums become the operators that ATen runs for them, so that they have derivatives, and kernels.
//
//   %2 = aten.einsum.default "bij,bkj->bik", [%0, %1], none
//   =>
//   %3 = aten.permute.default %1, [0, 2, 1]
//   %4 = aten.bmm.default %0, %3
//   %2 = aten.view.default %4, [2, 5, 7]
//
// Works on a segment (passes/extract_segment.h), before all other passes. Two operands are contracted at a
// time, from the first on. A label is *wanted* if the result or a later operand has it. Labels that only one
// of the two has, and that are not wanted, are summed. Labels of both that are not wanted are what a matrix
// product sums over. Labels of both that are wanted are batch dimensions. Without labels to sum over it is a
// multiplication.
//
// An einsum stays as it is if sizes are not fixed, or are 0 or 1 (ATen broadcasts those); if an operand has a
// label twice, an ellipsis is summed over, or a path is given; and if the result would have other strides
// than were recorded. Results have the bits of ATen's. Pure function, no GIL.
#pragma once

#include "ir/trace.h"

namespace kintsugi::passes {

// False: nothing has changed.
bool expandEinsums(ir::Trace& segment);

}  // namespace kintsugi::passes
