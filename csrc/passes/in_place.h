// Operators that write to their first operand, and those that do the same to each tensor of a list, while the
// graph of a segment is built (passes/write_tracker.h).
//
// Owned by who builds the graph; no GIL.
#pragma once

#include "passes/build_graph.h"
#include "passes/foreach_ops.h"
#include "passes/operator_rules.h"
#include "passes/write_tracker.h"

namespace kintsugi::passes {

class InPlaceBuilder {
 public:
  struct Parts {
    const ir::Trace& trace;
    TensorGraph& graph;
    std::vector<NodeId>& contentOf;  // by value
    WriteTracker& memory;
    Decomposer& decomposer;
    const GraphOptions& options;
  };
  explicit InPlaceBuilder(const Parts& parts)
      : trace_(parts.trace),
        graph_(parts.graph),
        nodeOf_(parts.contentOf),
        memory_(parts.memory),
        decomposer_(parts.decomposer),
        options_(parts.options) {}

  // `x.add_(y)`: from here on, x is another value. False: it can't be one.
  bool add(const ir::Instruction& ins, std::string_view name);
  // `_foreach_sqrt([x, y])`, whose results lie like the arguments.
  bool addForeach(const ir::Instruction& ins, std::string_view name);
  // `x.sqrt()`, of whose result nothing is known.
  bool addLike(const ir::Instruction& ins, std::string_view name);

 private:
  bool writeTo(ir::ValueId target, ops::Operator op, std::span<const ir::Operand> operands);
  bool mayWrite(ir::ValueId target) const;
  NodeId compute(const Decomposition& row, std::span<const ir::Operand> operands, const Node& like);
  bool addToEach(const ir::Instruction& ins, const ForeachOperator& many);
  std::vector<ir::Operand> operandsAt(std::span<const ir::Operand> operands, size_t k) const;
  std::optional<size_t> listLength(std::span<const ir::Operand> operands) const;
  void assumeNumbers(std::span<const ir::Operand> operands, const ir::Operand& list);
  bool isLikeAll(NodeId first, std::span<const ir::Operand> operands) const;
  bool sameElements(std::span<const ir::Operand> operands, Elem elem) const;

  const ir::Trace& trace_;
  TensorGraph& graph_;
  std::vector<NodeId>& nodeOf_;
  WriteTracker& memory_;
  Decomposer& decomposer_;
  const GraphOptions& options_;
};

}  // namespace kintsugi::passes
