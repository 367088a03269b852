// What CPython 3.13's opcodes mean where their argument says which instruction they are.
#include "pyapi/since313/meaning.h"

namespace kintsugi::pyapi {

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) { return meaningSince313(rawOpcode, arg); }

}  // namespace kintsugi::pyapi
