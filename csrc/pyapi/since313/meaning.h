// The meaning of opcodes that is the same since CPython 3.13. The version's own meaning.cc has the rest.
//
//   a bit of COMPARE_OP's argument (kAsBool) asks for a bool, which later versions test in one instruction
//
// Constant; no GIL.
#pragma once

#include "pyapi/since312/meaning.h"

namespace kintsugi::pyapi {

inline constexpr uint32_t kAsBool = 16;   // of COMPARE_OP
inline constexpr uint32_t kWithSpec = 4;  // of FORMAT_VALUE
inline constexpr uint32_t kLocation = 3;  // of RESUME: the other bit is the depth of handlers

inline Meaning meaningSince313(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::COMPARE_OP:  // the lower bits are for the specializer
      return {(arg & kAsBool) != 0 ? op::COMPARE_AND_TEST : op::COMPARE_OP, arg >> 5};
    case raw::FOR_ITER:  // the END_FOR and POP_TOP at the jump's target are for generators that run inline
      return {op::FOR_ITER, arg, 2};
    case raw::FORMAT_SIMPLE:
      return {op::FORMAT_VALUE, 0};
    case raw::FORMAT_WITH_SPEC:
      return {op::FORMAT_VALUE, kWithSpec};
    case raw::RESUME:
    case raw::INSTRUMENTED_RESUME:
      return {op::RESUME, arg & kLocation};
    default:
      return meaningSince312(rawOpcode, arg);
  }
}

}  // namespace kintsugi::pyapi
