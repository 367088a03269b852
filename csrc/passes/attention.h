// Attention as one node, softmax(scores) * values, which one kernel computes (passes/kernel.h).
//
//   aten.scaled_dot_product_attention.default %q, %k, %v, %mask      =>    %a = attention %q, %k, %v, %mask
//
// Queries, keys and values may have any strides, if the elements of their last dimension are neighbours.
// Sizes may vary, except those of heads. Operations on scores before softmax (scale, masks, biases) belong to
// the node. Pure functions, no GIL; needs a SizeScope.
#pragma once

#include <optional>
#include <string>

#include "passes/kernel.h"

namespace kintsugi::passes {

// Queries, keys or values: a node, and its strides as [batch, head, query or key, element].
struct AttentionOperand {
  NodeId node = ir::kNone;
  std::vector<Size> strides;
};

// Makes a node of attention: first the operations on scores, then finish() with queries, keys and values.
class AttentionMaker {
 public:
  AttentionMaker(const TensorGraph& graph, Size batch, Size heads, Size queries, Size keys);

  // Operations on scores. Each returns its index, for the operations that use it.
  uint32_t score();
  uint32_t constant(double number, Elem elem = Elem::kF32);
  uint32_t point(Core op, Elem elem, std::vector<uint32_t> args);
  uint32_t load(NodeId node, std::vector<Size> strides);

  struct Settings {
    int64_t headSize = 0, valueSize = 0;
    int64_t group = 1;
    bool causal = false;
    bool emptyZero = false;
  };
  // `result`: a node with the sizes and strides of the result. Nothing: no kernel can be made for it, or
  // ATen's is faster.
  std::optional<Node> finish(const AttentionOperand& query, const AttentionOperand& key,
                             const AttentionOperand& value, uint32_t scores, const Settings& settings,
                             Node result);

 private:
  uint32_t append(KernelOp op);

  const TensorGraph& graph_;
  Kernel kernel_;
  std::vector<NodeId> added_;
};

struct AttentionCall {
  NodeId query = ir::kNone, key = ir::kNone, value = ir::kNone, mask = ir::kNone;
  bool causal = false;
  bool grouped = false;
  std::optional<double> scale;
};
// `result`: a node with the sizes and strides that the operator's result had while recording. Nothing: the
// operator stays a call.
std::optional<Node> makeAttention(const TensorGraph& graph, const AttentionCall& call, Node result);

// The kernel of a node of attention.
Kernel attentionKernel(const TensorGraph& graph, NodeId id);
std::string attentionText(const KernelAttention& attention);

// Requires that two sizes are equal in each run. False: they differed while recording.
bool unify(Size a, Size b);

}  // namespace kintsugi::passes
