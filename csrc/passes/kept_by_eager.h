// Which tensors eager mode's autograd node of an operator saves for the backward.
//
//   aten.sin.default %0            saves %0 itself (derivative: cos)
//   aten.exp.default %0            saves the result
//   aten.matmul.default %0, %1     with %0 of sizes [2, 3, 8], folded to a matrix [6, 8]: saves a view
//                                  of %0, or a copy where its strides allow no view
//
// The operator's row says what it saves (ops/saved.h); metadata and which arguments require a gradient say
// the rest. Pure functions, no GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

struct KeptByEager {
  enum class As : uint8_t {
    kItself,  // the tensor object: the backward reads the memory that it has by then
    kView,    // a view: the memory that the tensor had in the forward
    kCopy,    // memory that no other tensor shares
  };
  ir::ValueId value = ir::kNone;
  As as = As::kItself;
  int8_t operand = -1;                  // -1: the result
  std::vector<ir::ValueId> alone = {};  // not empty: the node that saves it gives gradients to these only
};

// Does the result of an operator share memory, and so the version counter, with its first argument?
enum class Sharing : uint8_t {
  kNone,
  kView,
  kItself,  // the result is the argument itself, as of a conversion to the dtype that it has
};
Sharing sharingOf(const ir::Trace& trace, const ir::Instruction& ins);
// Is it a conversion that is known to convert something, so that its result is a copy? Of those that share
// nothing.
bool isConverted(const ir::Trace& trace, const ir::Instruction& ins);

// Does eager mode's node save any tensor? A number that it multiplies with counts too, as a wrapped tensor.
bool keepsAny(const ir::Trace& trace, const ir::Instruction& ins);
std::vector<KeptByEager> keptByEager(const ir::Trace& trace, const ir::Instruction& ins);

}  // namespace kintsugi::passes
