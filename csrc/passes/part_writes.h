// Writes to parts of tensors in a segment that is being cut, by the names of operators: which instructions
// can't follow in the same one (passes/segments.h).
//
// Owned by who cuts; no GIL.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ir/trace.h"

namespace kintsugi::passes {

// Of an operator that writes to its arguments: is there a form of it that computes a new value?
bool mayBeWrite(std::string_view name);

class PartWrites {
 public:
  explicit PartWrites(const ir::Trace& trace) : trace_(trace) {}

  bool needsCut(const ir::Instruction& ins) const;
  void add(const ir::Instruction& ins);  // to the segment
  void clear();                          // another segment begins

 private:
  struct ViewOfBase {
    ir::ValueId base = ir::kNone;    // whose memory
    ir::ValueId tensor = ir::kNone;  // the first value that was this tensor
    bool moves = false;              // where it lies depends on numbers of the run
  };
  ViewOfBase viewOfBase(ir::ValueId value) const;

  const ir::Trace& trace_;
  std::unordered_map<ir::ValueId, ViewOfBase> viewsOfBases_;
  std::unordered_map<ir::ValueId, ir::ValueId> written_;  // by base: the part, or kNone for several
};

}  // namespace kintsugi::passes
