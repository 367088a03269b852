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

namespace kintsugi::passes {

inline bool isPacked(const ir::TensorDesc& meta) {
  return meta.strides.empty() || meta.strides == ir::packedStrides(meta.sizes);
}
// Is there a derivative rule, and does the operator allocate its results?
bool givesFreshResults(ops::Operator op);

// A batch norm in training.
struct TrainedNorm {
  ir::Instruction ins;  // as it was recorded
  ir::ValueId mean = ir::kNone, scale = ir::kNone;
  ir::ValueId made = ir::kNone;   // its result
  ir::ValueId whole = ir::kNone;  // the result of ATen's own operator, in GradientGraph::recompute
};

class ForwardReader {
 public:
  ForwardReader(const ir::Trace& segment, const GradientOptions& options, std::string& reason);

 protected:
  // Reads the segment into graph_. False: it can't be differentiated, and the reason says why.
  bool readSegment();
  // The segment as it was recorded, but for the norms.
  ir::Trace makeRecompute();
  const TrainedNorm* normOf(ir::ValueId result) const;

  ir::Trace& trace() { return graph_.trace; }
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool isActive(ir::ValueId value) {
    const ir::Type& type = trace().values[value];
    return type.kind == ir::TypeKind::kTensor && type.meta != ir::kNone &&
           trace().metas[type.meta].requiresGrad;
  }
  // Are all tensors of an operator that autograd follows known, and such as rules can work with?
  bool isKnown(const ir::Instruction& ins);

  // An input that is written to: its present content, and the number of writes that eager mode counts.
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
  // Each of these reads an operator that writes or draws numbers. False: it is none of those that it knows.
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

  std::vector<bool> used_;  // by value: an operator has taken it
  std::vector<TrainedNorm> norms_;
  size_t segmentEnd_ = 0;  // the place of its mark
};

}  // namespace kintsugi::passes
