// The exception table of a code object. Its layout is the same in all versions.
#include "pyapi/frame.h"

namespace kintsugi::pyapi {

namespace {

// Reads one number of the exception table: six bits a byte, the highest first.
const uint8_t* readVarint(const uint8_t* p, int32_t* value) {
  int32_t result = *p & 63;
  while ((*p & 64) != 0) {
    p++;
    result = (result << 6) | (*p & 63);
  }
  *value = result;
  return p + 1;
}

}  // namespace

// An entry consists of four numbers: start, length, target, depth << 1 | lasti. Bit 7 marks the first byte of
// an entry. Entries are sorted by start and do not overlap.
Handler findHandler(const PyCodeObject* code, int32_t unit) {
  const auto* p = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_exceptiontable));
  const uint8_t* end = p + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (p < end) {
    int32_t start = 0;
    int32_t length = 0;
    int32_t target = 0;
    int32_t depthAndLasti = 0;
    p = readVarint(p, &start);
    if (start > unit) {
      break;
    }
    p = readVarint(p, &length);
    p = readVarint(p, &target);
    p = readVarint(p, &depthAndLasti);
    if (unit < start + length) {
      return {target, depthAndLasti >> 1, (depthAndLasti & 1) != 0};
    }
  }
  return {};
}

}  // namespace kintsugi::pyapi
