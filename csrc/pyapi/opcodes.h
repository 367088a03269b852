// The opcodes of the CPython that the build is for, as data: pyapi/v311/opcodes.def and its like.
//
// `op::LOAD_FAST` has CPython's name and number. Code is read in its de-specialized form (PyCode_GetCode()),
// so specialized forms are only met where CPython's own copy of the code is read. <opcode.h>, whose macros
// have the same names, must not be included. Owns nothing; no GIL is needed. Example: if (instr.op ==
// op::FOR_ITER) ... ; int units = opcodeInfo(op::CALL).caches;
#pragma once

#include <cstdint>

#include "pyapi/version.h"

namespace kintsugi::pyapi {

namespace op {

enum Opcode : uint8_t {
#define KINTSUGI_OPCODE(name, number, caches, argument) name = number,
#define KINTSUGI_SPECIALIZED(name, number, base) name = number,
#include KINTSUGI_VERSION_OPCODES
};

// The argument of BINARY_OP.
enum BinaryOperator : uint8_t {
#define KINTSUGI_BINARY_OPERATOR(name, number) name = number,
#include KINTSUGI_VERSION_OPCODES
};

}  // namespace op

// What the argument of an instruction is.
enum class ArgumentKind : uint8_t {
  kNone,      // unused
  kNumber,    // a count, or flags
  kConstant,  // an index of co_consts
  kName,      // of co_names
  kLocal,     // of a local variable
  kFree,      // of a cell or free variable
  kCompare,   // which comparison
  kJump,      // how far
  kJumpAbsolute,
};

struct OpcodeInfo {
  const char* name = nullptr;  // null: the version has no such opcode
  uint8_t caches = 0;          // inline cache units that follow the instruction
  ArgumentKind argument = ArgumentKind::kNone;
  uint8_t base = 0;  // what it is a specialized form of; itself, if it is none
};
const OpcodeInfo& opcodeInfo(uint8_t opcode);

// How many inline cache units follow an instruction.
inline int cacheCount(uint8_t opcode) { return opcodeInfo(opcode).caches; }

}  // namespace kintsugi::pyapi
