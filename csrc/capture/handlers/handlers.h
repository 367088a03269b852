// The opcode handlers: one function an opcode, declared from opcodes.def, and the table that the decoder
// reads.
//
// A handler executes one instruction with CPython's semantics on the activation's real stack. `act.pc`
// already points after the instruction and runningUnit() of the frame is it. It returns kRaise with a Python
// exception pending; operands that it consumed are then off the stack, so the unwinder sees only owned slots
// (null slots are allowed). Threads: the GIL is needed.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "capture/interpreter.h"
#include "pyapi/frame.h"

namespace kintsugi::capture {

namespace handlers {
#define KINTSUGI_OPCODE(opcode, function) Flow function(Activation& act, const Instr& instr);
#include "capture/handlers/opcodes.def"
// What every instruction without a handler runs: SystemError.
Flow unknownOpcode(Activation& act, const Instr& instr);
}  // namespace handlers

// LOAD_SUPER_ATTR is two instructions in one: super() is called with so many arguments, then an attribute of
// the result is loaded. BINARY_SLICE and STORE_SLICE make a slice first.
size_t superArgumentCount(const Instr& instr);
Instr attributeOfSuper(const Instr& instr);
// LOAD_FAST_LOAD_FAST and its like are two of LOAD_FAST and STORE_FAST.
bool hasHalves(const Instr& instr);
std::array<Instr, 2> halvesOf(const Instr& instr);
namespace handlers {
Flow makeSuper(Activation& act, const Instr& instr);
}

// The handler of an instruction.
OpHandler handlerOf(uint8_t opcode);
// As CPython calls it.
std::string opcodeName(uint8_t opcode);

}  // namespace kintsugi::capture
