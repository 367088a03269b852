// Which instruction a numbered intrinsic of CPython is, from 3.12 on.
#pragma once

#include <iterator>

#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

// By the argument of CALL_INTRINSIC_1. They leave a result, which argument 1 tells those that left none
// before. What is UNKNOWN is left to CPython.
inline constexpr uint8_t kIntrinsics[] = {
    op::UNKNOWN,        op::PRINT_EXPR,     op::IMPORT_STAR,  op::STOPITERATION_ERROR,
    op::ASYNC_GEN_WRAP, op::UNARY_POSITIVE, op::LIST_TO_TUPLE};
// Of CALL_INTRINSIC_2.
inline constexpr uint32_t kPrepReraiseStar = 1;

inline Meaning intrinsicMeaning(uint32_t number) {
  if (number < std::size(kIntrinsics) && kIntrinsics[number] != op::UNKNOWN) return {kIntrinsics[number], 1};
  return {op::INTRINSIC_1, number};
}

inline Meaning secondIntrinsicMeaning(uint32_t number) {
  if (number == kPrepReraiseStar) return {op::PREP_RERAISE_STAR};
  return {op::INTRINSIC_2, number};
}

}  // namespace kintsugi::pyapi
