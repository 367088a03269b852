#include "pyapi/opcodes.h"

#include <array>

namespace kintsugi::pyapi {

namespace {

constexpr std::array<OpcodeInfo, 256> makeTable() {
  std::array<OpcodeInfo, 256> table{};
#define KINTSUGI_OPCODE(name, number, caches, argument) \
  table[number] = {#name, caches, ArgumentKind::argument, number};
#include KINTSUGI_VERSION_OPCODES
#define KINTSUGI_SPECIALIZED(name, number, base) \
  table[number] = {#name, table[op::base].caches, table[op::base].argument, op::base};
#include KINTSUGI_VERSION_OPCODES
  return table;
}

constexpr std::array<OpcodeInfo, 256> kTable = makeTable();

}  // namespace

const OpcodeInfo& opcodeInfo(uint8_t opcode) { return kTable[opcode]; }

}  // namespace kintsugi::pyapi
