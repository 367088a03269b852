#include <array>

#include "capture/handlers/handlers.h"

namespace kintsugi::capture {

namespace {

constexpr std::array<OpHandler, 256> makeTable() {
  std::array<OpHandler, 256> table{};
  for (OpHandler& entry : table) {
    entry = handlers::unknownOpcode;
  }
#define KINTSUGI_OPCODE(opcode, function) table[opcode] = handlers::function;
#include "capture/handlers/opcodes.def"
  return table;
}

constexpr std::array<OpHandler, 256> kHandlers = makeTable();

constexpr std::array<const char*, 256> makeNames() {
  std::array<const char*, 256> names{};
#define KINTSUGI_OPCODE(opcode, function) names[opcode] = #opcode;
#include "capture/handlers/opcodes.def"
  return names;
}

constexpr std::array<const char*, 256> kNames = makeNames();

}  // namespace

OpHandler handlerOf(uint8_t opcode) { return kHandlers[opcode]; }

std::string opcodeName(uint8_t opcode) {
  return kNames[opcode] != nullptr ? kNames[opcode] : std::to_string(opcode);
}

namespace handlers {

Flow unknownOpcode(Activation& act, const Instr& instr) {
  PyErr_Format(PyExc_SystemError, "%U:%d: unknown opcode %d", pyapi::codeOf(act.frame)->co_filename,
               pyapi::lineAt(pyapi::codeOf(act.frame), instr.index), instr.op);
  return Flow::kRaise;
}

}  // namespace handlers

}  // namespace kintsugi::capture
