// The meaning of CPython 3.14's opcodes. For some, the argument decides which instruction it is.
#include "pyapi/since313/meaning.h"

namespace kintsugi::pyapi {

namespace {

constexpr uint32_t kAssertionError = 0;  // of LOAD_COMMON_CONSTANT
constexpr uint32_t kKeywords = 1;        // of CALL_FUNCTION_EX, whose null there may be, too
constexpr uint32_t kMethod = 1;  // of WITH_EXCEPT_START: above the method lies what it is bound to, or null

}  // namespace

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) {
  switch (rawOpcode) {
    case raw::BINARY_OP:
      return arg == op::NB_SUBSCR ? Meaning{op::BINARY_SUBSCR} : Meaning{op::BINARY_OP, arg};
    case raw::CALL_FUNCTION_EX:
      return {op::CALL_FUNCTION_EX, kKeywords};
    case raw::LOAD_COMMON_CONSTANT:
      return arg == kAssertionError ? Meaning{op::LOAD_ASSERTION_ERROR}
                                    : Meaning{op::LOAD_COMMON_CONSTANT, arg};
    case raw::WITH_EXCEPT_START:
      return {op::WITH_EXCEPT_START, kMethod};
    default:
      return meaningSince313(rawOpcode, arg);
  }
}

}  // namespace kintsugi::pyapi
