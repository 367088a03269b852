#include "ir/value_maker.h"

namespace kintsugi::ir {

const Instruction* makerOf(const Trace& trace, ValueId value) {
  const auto& code = trace.code;
  size_t first = 0, end = code.size();  // it is among these
  while (first < end) {
    const size_t middle = first + (end - first) / 2;
    size_t at = middle;
    while (at > first && code[at].resultCount == 0) --at;
    const Instruction& ins = code[at];
    if (ins.resultCount == 0 || ins.firstResult + ins.resultCount <= value) {
      first = middle + 1;  // those between have no result
    } else if (ins.firstResult > value) {
      end = at;
    } else {
      return &ins;
    }
  }
  return nullptr;
}

}  // namespace kintsugi::ir
