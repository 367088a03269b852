// Attention as one node, softmax(scores) * values, which one kernel computes (passes/kernel.h).
//
//   aten.scaled_dot_product_attention.default %q, %k, %v, %mask      =>    %a = attention %q, %k, %v, %mask
//
// Queries, keys and values may lie in any way whose last dimension is a run; sizes may vary but for those of
// heads. What is made of the scores before softmax (scale, masks, biases) belongs to the node. Pure
// functions, no GIL; needs a SizeScope.
#pragma once

#include <optional>
#include <string>

#include "passes/kernel.h"

namespace kintsugi::passes {

// What attention is of, within [batch, head, query or key, element].
struct AttentionOperand {
  NodeId node = ir::kNone;
  std::vector<Size> strides;
};

// Makes a node, step by step: what scores are, then of what.
class AttentionMaker {
 public:
  AttentionMaker(const TensorGraph& graph, Size batch, Size heads, Size queries, Size keys);

  // Ops on scores; each gives its number.
  uint32_t score();
  uint32_t constant(double number, Elem elem = Elem::kF32);
  uint32_t point(Core op, Elem elem, std::vector<uint32_t> args);
  uint32_t load(NodeId node, std::vector<Size> strides);

  // Nothing: no kernel can be made for it, or ATen's is better. `result` has its sizes and strides.
  struct Settings {
    int64_t headSize = 0, valueSize = 0;
    int64_t group = 1;
    bool causal = false;
    bool emptyZero = false;
  };
  std::optional<Node> finish(const AttentionOperand& query, const AttentionOperand& key,
                             const AttentionOperand& value, uint32_t scores, const Settings& settings,
                             Node result);

 private:
  uint32_t append(KernelOp op);

  const TensorGraph& graph_;
  Kernel kernel_;
  std::vector<NodeId> added_;
};

// `result`: of what the operator returns, as it was seen. Nothing: it stays a call.
struct AttentionCall {
  NodeId query = ir::kNone, key = ir::kNone, value = ir::kNone, mask = ir::kNone;
  bool causal = false;
  bool grouped = false;
  std::optional<double> scale;
};
std::optional<Node> makeAttention(const TensorGraph& graph, const AttentionCall& call, Node result);

// The kernel of a node of attention.
Kernel attentionKernel(const TensorGraph& graph, NodeId id);
std::string attentionText(const KernelAttention& attention);

// Two sizes that have to be the same: from here on they are. False: they were not while recording.
bool unify(Size a, Size b);

}  // namespace kintsugi::passes
