// The instructions of code objects, in one form for all versions of CPython.
//
// `op::LOAD_FAST` is an instruction of instructions.def; the interpreter and the recorder only know these.
// `raw::LOAD_FAST` is an opcode with the number that the CPython of this build gives it
// (pyapi/v311/opcodes.def and the like); only this layer uses those. decode() turns raw opcodes into
// instructions. Code is read in its de-specialized form (PyCode_GetCode()). <opcode.h>, whose macros have the
// same names, must not be included. Owns nothing; no GIL is needed. Example:
//  const Decoded in = decode(bytes, unit);
//  if (in.op == op::FOR_ITER) ... in.target ...
//  unit = in.next;
#pragma once

#include <cstdint>

#include "pyapi/version.h"

namespace kintsugi::pyapi {

namespace op {

enum Instruction : uint8_t {
  UNKNOWN,  // no compiler emits it
#define KINTSUGI_INSTRUCTION(name) name,
#include "pyapi/instructions.def"
  kCount,
};

// The argument of BINARY_OP.
enum BinaryOperator : uint8_t {
#define KINTSUGI_BINARY_OPERATOR(name, number) name = number,
#include KINTSUGI_VERSION_OPCODES
};

}  // namespace op

namespace raw {

enum Opcode : uint8_t {
#define KINTSUGI_OPCODE(name, number, caches, argument) name = number,
#define KINTSUGI_SPECIALIZED(name, number, base) name = number,
#include KINTSUGI_VERSION_OPCODES
};

}  // namespace raw

// What the argument of an opcode is.
enum class ArgumentKind : uint8_t {
  kNone,      // unused
  kNumber,    // a count, or flags
  kConstant,  // an index of co_consts
  kName,      // of co_names
  kLocal,     // of a local variable
  kFree,      // of a cell or free variable
  kCompare,   // which comparison
  kJump,      // how far forwards, from the next instruction
  kJumpBack,  // how far backwards
};

struct OpcodeInfo {
  const char* name = nullptr;  // null: the version has no such opcode
  uint8_t caches = 0;          // inline cache units that follow the instruction
  ArgumentKind argument = ArgumentKind::kNone;
  uint8_t base = 0;                   // the opcode that it specializes; itself, if it is no specialized form
  uint8_t instruction = op::UNKNOWN;  // the instruction of the same name, or the one that the version names
};
const OpcodeInfo& opcodeInfo(uint8_t rawOpcode);
// The name of an op::Instruction.
const char* instructionName(uint8_t instruction);

// What an opcode with its argument means.
struct Meaning {
  uint8_t op = op::UNKNOWN;
  uint32_t arg = 0;
  int32_t skips = 0;  // a jump goes this many units farther
};
// The version's own function (in its meaning.cc).
Meaning meaningOf(uint8_t rawOpcode, uint32_t arg);

// A decoded instruction.
struct Decoded {
  uint8_t op = op::UNKNOWN;
  uint32_t arg = 0;
  int32_t index = 0;    // the code unit of the opcode itself, after its EXTENDED_ARGs
  int32_t next = 0;     // the code unit after its inline caches
  int32_t target = -1;  // where it may jump; -1: it does not
};
// Decodes the instruction that begins at code unit `unit`; `bytes` is the result of PyCode_GetCode().
Decoded decode(const uint8_t* bytes, int32_t unit);
// The instruction of code that ends right before code unit `next`; UNKNOWN when there is no memory.
Decoded decodeBefore(PyCodeObject* code, int32_t next);

}  // namespace kintsugi::pyapi
