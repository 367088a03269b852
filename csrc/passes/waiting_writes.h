// Writes of an FX graph to older tensors while a decision on contents waits for the end of the graph.
//
//   %1 = aten.ge.Scalar %0, 100            %0: a counter, a buffer of the module
//   %2 = aten.item.default %1 deferrable   asked when the graph has run
//   guard.false %2 deferrable
//   %3 = aten.add_.Tensor %0, 1            has happened by then
//
// If the guard fails, the run rolls the graph back: it restores %0 from a copy, computes what stands in front
// of the guard once more, and leaves there (Run::leaveSegment). So such a write is allowed if what it writes
// to is small, plain and known, and is not what a waiting question reads: %0 itself may not be asked. Whether
// two older tensors share memory is found out in each run.
//
// Owned by the pass that cuts segments (passes/segments.h); borrows the trace. No GIL. Linear in what is
// added.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/segments.h"

namespace kintsugi::passes {

class WaitingWrites {
 public:
  WaitingWrites(const ir::Trace& trace, OperatorTraitsFn traits);

  // May the graph write so, although decisions wait? They all are questions and guards that ask() has seen.
  bool allows(const ir::Instruction& ins) const;
  // May a decision wait behind the writes so far?
  bool mayAsk() const { return restorable_; }
  void ask(const ir::Instruction& ins);  // it waits for the end of the graph
  // An instruction of the graph; `writes`: to something older.
  void add(const ir::Instruction& ins, bool writes);
  void clear();  // another segment begins

 private:
  static constexpr ir::ValueId kOwn = ir::kNone - 1, kUnknown = ir::kNone - 2;
  // More are copied in longer than a graph that is split takes.
  static constexpr int64_t kMostElements = int64_t{1} << 18;

  ir::ValueId olderOf(ir::ValueId value) const;
  ir::ValueId targetOf(const ir::Instruction& ins) const;
  int64_t elementsOf(ir::ValueId value) const;

  const ir::Trace& trace_;
  OperatorTraitsFn traits_;
  std::vector<ir::ValueId> older_;  // by value that the segment makes: the older one whose memory it is
  std::vector<ir::ValueId> touched_;
  std::vector<bool> asked_, written_;  // by older tensor
  int64_t elements_ = 0;               // of what is written to
  bool asksShared_ = false;            // a question reads what a write may change
  bool restorable_ = true;             // all that is written to
};

}  // namespace kintsugi::passes
