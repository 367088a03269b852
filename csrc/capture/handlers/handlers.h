// The opcode handlers: one function for each opcode, declared from opcodes.def, and the table that the
// decoder reads.
//
// A handler executes one instruction with CPython's semantics on the activation's real stack. `act.pc`
// already points after the instruction; the frame's runningUnit() is the instruction itself. A handler
// returns kRaise if a Python exception is pending. Operands that it has consumed are then off the stack, so
// the unwinder sees only owned slots (null slots are allowed). Threads: the GIL is needed.
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
// Handles every instruction that has no handler: raises SystemError.
Flow unknownOpcode(Activation& act, const Instr& instr);
}  // namespace handlers

// Some instructions are two in one. LOAD_SUPER_ATTR calls super() with this many arguments and loads an
// attribute of the result. BINARY_SLICE and STORE_SLICE make a slice and then use it as an index.
size_t superArgumentCount(const Instr& instr);
Instr attributeOfSuper(const Instr& instr);
// LOAD_FAST_LOAD_FAST and the like are two instructions of LOAD_FAST and STORE_FAST.
bool hasHalves(const Instr& instr);
std::array<Instr, 2> halvesOf(const Instr& instr);
namespace handlers {
Flow makeSuper(Activation& act, const Instr& instr);
}

// The handler of an op::Instruction.
OpHandler handlerOf(uint8_t opcode);
// Its name, which is mostly that of CPython's opcode.
std::string opcodeName(uint8_t opcode);

}  // namespace kintsugi::capture
