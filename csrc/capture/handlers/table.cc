#include <array>

#include "capture/handlers/handlers.h"
#include "pyapi/opcodes.h"
#include "support/check.h"

namespace kintsugi::capture {

namespace {

constexpr std::array<OpHandler, op::kCount> makeTable() {
  std::array<OpHandler, op::kCount> table{};
  for (OpHandler& entry : table) {
    entry = handlers::unknownOpcode;
  }
#define KINTSUGI_OPCODE(opcode, function) table[pyapi::op::opcode] = handlers::function;
#include "capture/handlers/opcodes.def"
  return table;
}

constexpr std::array<OpHandler, op::kCount> kHandlers = makeTable();

}  // namespace

OpHandler handlerOf(uint8_t opcode) {
  KINTSUGI_DCHECK(opcode < kHandlers.size(), "no handler for op ", int(opcode));
  return kHandlers[opcode];
}

std::string opcodeName(uint8_t opcode) { return pyapi::instructionName(opcode); }

namespace handlers {

Flow unknownOpcode(Activation& act, const Instr& instr) {
  PyCodeObject* code = pyapi::codeOf(act.frame);
  PyErr_Format(PyExc_SystemError, "%U:%d: unknown opcode %d", pyapi::fileOf(code),
               pyapi::lineAt(code, instr.index), pyapi::opcodeNumberAt(code, instr.index));
  return Flow::kRaise;
}

}  // namespace handlers

}  // namespace kintsugi::capture
