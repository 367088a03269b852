// The meaning of CPython 3.13's opcodes. For some, the argument decides which instruction it is.
#include "pyapi/since313/meaning.h"

namespace kintsugi::pyapi {

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) { return meaningSince313(rawOpcode, arg); }

}  // namespace kintsugi::pyapi
