// What eager mode keeps of one operator of a trace, by its row (ops/saved.h) and by what is known of its
// arguments. Matrix products fold tensors of three and more dimensions to matrices: they keep a view where
// one can be had, and else a copy.
//
// Pure function, no GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

struct KeptByEager {
  enum class As : uint8_t {
    kItself,  // other memory that it is given is followed
    kView,    // the memory of the forward
    kCopy,    // nobody else's memory
  };
  ir::ValueId value = ir::kNone;
  As as = As::kItself;
  int8_t operand = -1;                  // -1: the result
  std::vector<ir::ValueId> alone = {};  // by a node that runs for the gradients of these alone
};

// Does the only result of an operator share the memory, and with it the version, of its first argument?
enum class Sharing : uint8_t {
  kNone,
  kView,
  kItself,  // it is the very tensor: a conversion that converts nothing
};
Sharing sharingOf(const ir::Trace& trace, const ir::Instruction& ins);

// Does it keep any tensor? A number that it multiplies with, too, counts.
bool keepsAny(const ir::Trace& trace, const ir::Instruction& ins);
std::vector<KeptByEager> keptByEager(const ir::Trace& trace, const ir::Instruction& ins);

}  // namespace kintsugi::passes
