#include "pyapi/opcodes.h"

#include <array>
#include <string_view>

#include "pyapi/code.h"
#include "pyapi/ref.h"
#include "support/check.h"

namespace kintsugi::pyapi {

namespace {

constexpr const char* kNames[] = {
    "UNKNOWN",
#define KINTSUGI_INSTRUCTION(name) #name,
#include "pyapi/instructions.def"
};
static_assert(std::size(kNames) == op::kCount);

constexpr uint8_t instructionNamed(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<uint8_t>(i);
  }
  return op::UNKNOWN;
}

constexpr std::array<OpcodeInfo, 256> makeTable() {
  std::array<OpcodeInfo, 256> table{};
#define KINTSUGI_OPCODE(name, number, caches, argument) \
  table[number] = {#name, caches, ArgumentKind::argument, number, instructionNamed(#name)};
#define KINTSUGI_MEANS(name, instruction_) table[raw::name].instruction = op::instruction_;
#include KINTSUGI_VERSION_OPCODES
#define KINTSUGI_SPECIALIZED(name_, number, base_) \
  table[number] = table[raw::base_];               \
  table[number].name = #name_;
#include KINTSUGI_VERSION_OPCODES
  return table;
}

constexpr std::array<OpcodeInfo, 256> kTable = makeTable();

}  // namespace

const OpcodeInfo& opcodeInfo(uint8_t rawOpcode) { return kTable[rawOpcode]; }

const char* instructionName(uint8_t instruction) {
  return instruction < op::kCount ? kNames[instruction] : kNames[0];
}

Decoded decode(const uint8_t* bytes, int32_t unit) {
  KINTSUGI_DCHECK(unit >= 0, "unit ", unit);
  uint8_t opcode = bytes[2 * unit];
  uint32_t arg = bytes[2 * unit + 1];
  while (opcode == raw::EXTENDED_ARG) {
    unit++;
    opcode = bytes[2 * unit];
    arg = (arg << 8) | bytes[2 * unit + 1];
  }
  const OpcodeInfo& info = kTable[opcode];
  const Meaning meaning = meaningOf(opcode, arg);
  Decoded result{meaning.op, meaning.arg, unit, unit + 1 + info.caches, -1};
  if (info.argument == ArgumentKind::kJump) {
    result.target = result.next + static_cast<int32_t>(arg) + meaning.skips;
  } else if (info.argument == ArgumentKind::kJumpBack) {
    result.target = result.next - static_cast<int32_t>(arg);
    KINTSUGI_DCHECK(result.target >= 0, "the jump at ", unit, " leads in front of the code");
  }
  return result;
}

Decoded decodeBefore(PyCodeObject* code, int32_t next) {
  Ref<> bytes = steal(PyCode_GetCode(code));
  if (!bytes) {
    PyErr_Clear();
    return {};
  }
  KINTSUGI_CHECK(next >= 0 && next <= codeUnitCount(code), "unit ", next, " of ", codeUnitCount(code));
  const auto* units = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes.get()));
  for (int32_t unit = 0; unit < next;) {
    const Decoded in = decode(units, unit);
    if (in.next == next) return in;
    unit = in.next;
  }
  return {};
}

}  // namespace kintsugi::pyapi
