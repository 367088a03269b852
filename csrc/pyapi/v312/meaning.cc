// What CPython 3.12's opcodes mean where their argument says which instruction they are.
#include "pyapi/since312/meaning.h"
#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::COMPARE_OP:  // the lower bits are for the specializer
      return {op::COMPARE_OP, arg >> 4};
    case raw::FOR_ITER:  // the END_FOR at the jump's target is for generators that run inline
      return {op::FOR_ITER, arg, 1};
    default:
      return meaningSince312(rawOpcode, arg);
  }
}

}  // namespace kintsugi::pyapi
