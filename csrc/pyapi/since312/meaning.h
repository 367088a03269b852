// The meaning of opcodes that is the same since CPython 3.12. The version's own meaning.cc has the rest.
//
//   meaningSince312(raw::LOAD_ATTR, 7): {op::LOAD_METHOD, 3}      bit 0 of the argument: for a call
//
// Constant; no GIL.
#pragma once

#include <iterator>

#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

// By the argument of CALL_INTRINSIC_1. These instructions leave a result; an argument of 1 says so to
// handlers that left none in CPython 3.11. UNKNOWN ones are done by CPython's function.
inline constexpr uint8_t kIntrinsics[] = {
    op::UNKNOWN,        op::PRINT_EXPR,     op::IMPORT_STAR,  op::STOPITERATION_ERROR,
    op::ASYNC_GEN_WRAP, op::UNARY_POSITIVE, op::LIST_TO_TUPLE};
// The argument of CALL_INTRINSIC_2.
inline constexpr uint32_t kPrepReraiseStar = 1;

inline Meaning intrinsicMeaning(uint32_t number) {
  if (number < std::size(kIntrinsics) && kIntrinsics[number] != op::UNKNOWN) return {kIntrinsics[number], 1};
  return {op::INTRINSIC_1, number};
}

inline Meaning secondIntrinsicMeaning(uint32_t number) {
  if (number == kPrepReraiseStar) return {op::PREP_RERAISE_STAR};
  return {op::INTRINSIC_2, number};
}

inline Meaning meaningSince312(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::LOAD_ATTR:  // bit 0: for a call
      return {(arg & 1) != 0 ? op::LOAD_METHOD : op::LOAD_ATTR, arg >> 1};
    case raw::CALL_INTRINSIC_1:
      return intrinsicMeaning(arg);
    case raw::CALL_INTRINSIC_2:
      return secondIntrinsicMeaning(arg);
    default:
      return {opcodeInfo(rawOpcode).instruction, arg};
  }
}

}  // namespace kintsugi::pyapi
