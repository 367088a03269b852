// Finds where a segment has to end because of a write to a part of a tensor: before an instruction that reads
// other views of the same memory (passes/segments.h). Writes are known by the names of operators.
//
// Owned by who cuts; no GIL.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ir/trace.h"

namespace kintsugi::passes {

// Does an operator that writes to its arguments have a form that computes a new value?
bool mayBeWrite(std::string_view name);

class PartWrites {
 public:
  explicit PartWrites(const ir::Trace& trace) : trace_(trace) {}

  bool needsCut(const ir::Instruction& ins) const;
  void add(const ir::Instruction& ins);  // to the segment
  void clear();                          // another segment begins

 private:
  struct ViewOfBase {
    ir::ValueId base = ir::kNone;    // the tensor that owns the memory
    ir::ValueId tensor = ir::kNone;  // the first value that was this tensor
    bool moves = false;              // its offset depends on numbers of the run
  };
  ViewOfBase viewOfBase(ir::ValueId value) const;

  const ir::Trace& trace_;
  std::unordered_map<ir::ValueId, ViewOfBase> viewsOfBases_;
  std::unordered_map<ir::ValueId, ir::ValueId> written_;  // by base: the part, or kNone for several
};

}  // namespace kintsugi::passes
