// The meaning of CPython 3.12's opcodes. For some, the argument decides which instruction it is.
#include "pyapi/since312/meaning.h"
#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::COMPARE_OP:  // the lower bits are for the specializer
      return {op::COMPARE_OP, arg >> 4};
    case raw::FOR_ITER:  // END_FOR at the jump's target is for inline generators
      return {op::FOR_ITER, arg, 1};
    default:
      return meaningSince312(rawOpcode, arg);
  }
}

}  // namespace kintsugi::pyapi
