// The meaning of CPython 3.11's opcodes: each is the instruction that its row says.
#include "pyapi/opcodes.h"

namespace kintsugi::pyapi {

Meaning meaningOf(uint8_t rawOpcode, uint32_t arg) { return {opcodeInfo(rawOpcode).instruction, arg}; }

}  // namespace kintsugi::pyapi
