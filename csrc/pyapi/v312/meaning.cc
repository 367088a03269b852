// What CPython 3.12's opcodes mean where their argument says which instruction they are.
#include "pyapi/opcodes.h"

#include <iterator>

namespace kintsugi::pyapi {

namespace {

// By the argument of CALL_INTRINSIC_1. They leave a result, which argument 1 tells those that left none
// before. What is UNKNOWN is left to CPython.
constexpr uint8_t kIntrinsics[] = {
    op::UNKNOWN,        op::PRINT_EXPR,     op::IMPORT_STAR,  op::STOPITERATION_ERROR,
    op::ASYNC_GEN_WRAP, op::UNARY_POSITIVE, op::LIST_TO_TUPLE};
// Of CALL_INTRINSIC_2.
constexpr uint32_t kPrepReraiseStar = 1;

Meaning intrinsic(uint32_t number) {
  if (number < std::size(kIntrinsics) && kIntrinsics[number] != op::UNKNOWN) return {kIntrinsics[number], 1};
  return {op::INTRINSIC_1, number};
}

}  // namespace

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::LOAD_ATTR:  // bit 0: for a call
      return {(arg & 1) != 0 ? op::LOAD_METHOD : op::LOAD_ATTR, arg >> 1};
    case raw::COMPARE_OP:  // the lower bits are for the specializer
      return {op::COMPARE_OP, arg >> 4};
    case raw::FOR_ITER:  // the END_FOR at the jump's target is for generators that run inline
      return {op::FOR_ITER, arg, 1};
    case raw::CALL_INTRINSIC_1:
      return intrinsic(arg);
    case raw::CALL_INTRINSIC_2:
      if (arg == kPrepReraiseStar) return {op::PREP_RERAISE_STAR};
      return {op::INTRINSIC_2, arg};
    default:
      return {opcodeInfo(rawOpcode).instruction, arg};
  }
}

}  // namespace kintsugi::pyapi
