// What CPython 3.12's opcodes mean where their argument says which instruction they are.
#include "pyapi/opcodes.h"
#include "pyapi/since312/intrinsic_meaning.h"

namespace kintsugi::pyapi {

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::LOAD_ATTR:  // bit 0: for a call
      return {(arg & 1) != 0 ? op::LOAD_METHOD : op::LOAD_ATTR, arg >> 1};
    case raw::COMPARE_OP:  // the lower bits are for the specializer
      return {op::COMPARE_OP, arg >> 4};
    case raw::FOR_ITER:  // the END_FOR at the jump's target is for generators that run inline
      return {op::FOR_ITER, arg, 1};
    case raw::CALL_INTRINSIC_1:
      return intrinsicMeaning(arg);
    case raw::CALL_INTRINSIC_2:
      return secondIntrinsicMeaning(arg);
    default:
      return {opcodeInfo(rawOpcode).instruction, arg};
  }
}

}  // namespace kintsugi::pyapi
