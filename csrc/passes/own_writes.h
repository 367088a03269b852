// Functionalizes writes to tensors that the segment itself allocates: writes to a part (`out[:, t] = h`) and
// to rows (`out.index_put_(i, h)`) become new values. (Other operators in place become kernels:
// passes/in_place.h.)
//
//   %3 = aten.zeros_like.default %0               %4 = aten.stack.default [%1, %2], 1
//   %4 = aten.select.int %3, 1, 0                 %5 = aten.relu.default %4
//   %5 = aten.copy_.default %4, %1         --->
//   %6 = aten.select.int %3, 1, 1
//   %7 = aten.copy_.default %6, %2
//   %8 = aten.relu.default %3
//
// A part is a slice along one dimension. Parts that have been written are gathered into one concatenation,
// with the rest of the tensor, when something first reads the tensor, or before the source of a part may
// change. Later views are taken of the concatenation.
//
// Only tensors that nothing outside can see qualify: results of operators that always allocate, and views of
// them. The pass that cuts segments (passes/segments.h) and the one that rewrites them ask the same class, so
// every write that stays inside a segment can be rewritten. Linear in the size of the segment,
// times the tensors that have unwritten parts at once. Borrows the trace. No GIL.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "passes/segments.h"

namespace kintsugi::passes {

class OwnWrites {
 public:
  struct Part {
    int64_t low = 0, high = 0;
    ir::ValueId source = ir::kNone;    // what was written to the part
    ir::ValueId captured = ir::kNone;  // its content at the time of the write, from Hooks::capture()
  };
  // A tensor that the segment allocated.
  struct OwnTensor {
    std::vector<Part> parts;  // written since the last concatenation
    int64_t dim = 0;          // the dimension along which they are slices
    bool stacked = false;     // parts lack that dimension: they are written by select(), not slice()
    bool escaped = false;     // an unknown operator may hold a view of it
    uint32_t gathers = 0;     // concatenations so far
  };
  // A value that is an OwnTensor or a view of one.
  struct ViewOfBase {
    ir::ValueId base = ir::kNone;
    const ir::Instruction* view = nullptr;  // that made the view; null: the value is the tensor itself
    uint32_t result = 0;                    // which of the view's results it is
  };
  struct Hooks {
    std::function<void(ir::ValueId base, const OwnTensor&)> gather;  // makes the concatenation
    std::function<ir::ValueId(ir::ValueId)> capture;                 // the value with the present content
  };

  // The trace outlives this, and what is added of its code stays where it is.
  OwnWrites(const ir::Trace& trace, OperatorTraitsFn traits, Hooks hooks = {})
      : trace_(trace), traits_(traits), hooks_(std::move(hooks)) {}

  // Is it a write that can become a new value?
  bool canFunctionalize(const ir::Instruction& ins) const;
  bool canFunctionalizeRows(const ir::Instruction& ins) const;  // the same, of writes to rows alone
  // Is it a write to a part of an OwnTensor that can't become a new value? If the segment is cut before it,
  // the tensor is an input of the next segment, and native code can write to parts of inputs.
  bool needsCut(const ir::Instruction& ins) const;
  void add(const ir::Instruction& ins);  // the next instruction of the segment
  void gatherAll();                      // at its end: makes the concatenations that are left
  void clear();                          // another segment begins

  const ViewOfBase* viewOfBase(ir::ValueId value) const;
  static bool isDeferredView(std::string_view name);

 private:
  struct Place {
    int64_t dim = 0, low = 0, high = 0;
    bool stacked = false;
  };
  const std::string& nameOf(const ir::Instruction& ins) const { return trace_.opNames[ins.opName]; }
  const ir::TensorDesc* metaOf(ir::ValueId value) const;
  const OwnTensor* ownOf(ir::ValueId value) const;
  std::optional<Place> placeOf(ir::ValueId value) const;
  bool canFunctionalizePart(const ir::Instruction& ins) const;
  bool readsTarget(const ir::Instruction& ins) const;
  bool requiresGradient(const ir::Instruction& ins) const;
  bool isSafe(const Part& part, ir::ValueId base, ir::ValueId target) const;
  static bool fitsBeside(const OwnTensor& own, const Place& place);
  static bool isDisjoint(const Place& place, const std::optional<Place>& other);
  void addView(const ir::Instruction& ins);
  void addPart(const ir::Instruction& ins);
  void addResults(const ir::Instruction& ins);
  void beforeWrite(ir::ValueId target);
  void read(const ir::Instruction& ins, bool allButFirst);
  void gather(ir::ValueId base);

  const ir::Trace& trace_;
  OperatorTraitsFn traits_;
  Hooks hooks_;
  std::unordered_map<ir::ValueId, OwnTensor> ownTensors_;
  std::unordered_map<ir::ValueId, ViewOfBase> viewsOfBases_;
  std::vector<ir::ValueId> pending_;  // tensors with parts that were written since their last concatenation
};

// Rewrites a segment (passes/extract_segment.h). Returns false if it has no such write: then nothing changed.
bool gatherOwnWrites(ir::Trace& segment, OperatorTraitsFn traits);

}  // namespace kintsugi::passes
