// Inside passes only: reads a segment for differentiate() (passes/gradient_graph.h), operator by operator, so
// that each is one that a derivative rule takes.
//
//   operator                        what it becomes
//   %1 = aten.add_.Tensor %0, 1     %5 = aten.add.Tensor %0, 1, where nothing has read %0 yet
//   aten.batch_norm in training     the operators that it consists of (forward_norms.cc)
//   aten.dropout in training        a product with a mask, which is a new input of the graph
//   aten.add_.Tensor %input, 1      aten.add.Tensor, whose result is a new output of the graph: the runtime
//                                   copies it into the input, which nothing reads again
//
// Ownership: the reader owns the graph that it makes; the options and the reason are the caller's. Threads:
// any, none is shared. No GIL. Invalidation: none.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "passes/gradient_graph.h"
#include "passes/requires_grad.h"

namespace kintsugi::passes {

inline bool isPacked(const ir::TensorDesc& meta) {
  return meta.strides.empty() || meta.strides == ir::packedStrides(meta.sizes);
}
// Does the operator have a derivative rule, and does it allocate its results?
bool givesFreshResults(ops::Operator op);

// A batch norm in training mode, which the graph computes by several operators.
struct TrainedNorm {
  ir::Instruction ins;  // as it was recorded
  ir::ValueId mean = ir::kNone, scale = ir::kNone;
  ir::ValueId made = ir::kNone;   // the result of those operators
  ir::ValueId whole = ir::kNone;  // the result of ATen's one operator, in GradientGraph::recompute
};

class ForwardReader {
 public:
  ForwardReader(const ir::Trace& segment, const GradientOptions& options, std::string& reason);

 protected:
  // Reads the segment into graph_. False: it can't be differentiated, and the reason says why.
  bool readSegment();
  // The segment as it was recorded, except that norms are calls of TrainedNorm::whole.
  ir::Trace makeRecompute();
  const TrainedNorm* normOf(ir::ValueId result) const;

  ir::Trace& trace() { return graph_.trace; }
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool isActive(ir::ValueId value) { return requiresGrad(trace(), value); }
  // Are all operands and results tensors of fixed sizes on the processor, and those that require a gradient
  // of a floating-point type?
  bool isKnown(const ir::Instruction& ins);

  // An input that the segment writes to: its present content, and how often eager mode raises its version.
  struct HeldInput {
    ir::ValueId value = ir::kNone;
    uint32_t times = 0;
  };

  const GradientOptions& options_;
  std::string& reason_;
  GradientGraph graph_;
  std::vector<uint32_t> madeBy_;    // by value: the instruction
  std::vector<uint32_t> sequence_;  // operators and changes of the grad mode, in order
  std::map<ir::ValueId, HeldInput> stores_;
  std::vector<ir::ValueId> masks_;

 private:
  bool readOperator(const ir::Instruction& ins, uint32_t at, bool started);
  void addForward(uint32_t at);
  uint32_t appendForward(ops::Operator op, std::span<const ir::Operand> operands,
                         std::span<const ir::Type> types);
  // Each of these reads one kind of operator that writes or draws random numbers. False: it is another kind.
  bool addInPlace(const ir::Instruction ins, bool started);
  bool addInputWrite(const ir::Instruction ins);
  bool addBatchNorm(const ir::Instruction ins, bool started);
  bool addDropout(const ir::Instruction ins, bool started);

  bool isImpure(const ir::Instruction& ins);
  bool isOnlyWritten(ir::ValueId input);
  bool isUsed(ir::ValueId value);
  bool takesActive(const ir::Instruction& ins);
  bool makesUnknown(const ir::Instruction& ins);
  bool dropsGradient(const ir::Instruction& ins);
  bool computesSameForm(const ir::Instruction& ins, const std::vector<ir::Operand>& operands);
  ir::ValueId heldBy(ir::ValueId input) const;

  ir::ValueId compute(ops::Operator op, std::initializer_list<ir::Operand> operands,
                      std::vector<int64_t> sizes, bool active);
  ir::Operand listOf(const std::vector<int64_t>& numbers);
  bool isPlainBatchNorm(const ir::Instruction& ins, const std::vector<ir::Operand>& o);
  void addNorm(TrainedNorm norm, const std::vector<ir::ValueId>& dropped);

  std::vector<bool> used_;  // by value: an operator has read it
  std::vector<TrainedNorm> norms_;
  size_t segmentEnd_ = 0;  // index of the instruction `segment.end`
};

}  // namespace kintsugi::passes
