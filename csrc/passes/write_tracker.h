// Writes to memory that the outside sees, while the graph of a segment is built.
//
//   %3 = aten.mul_.Tensor %0, 2        %0 stays the tensor that it is; what it holds is another node now
//   %4 = aten.add.Tensor %0, %1, 1     reads that node
//   segment.end [%3]                   is the tensor of %0
//
// Idea: native code writes to inputs at the very end of a run. Until then a node that reads an input reads
// what was there at the beginning, and a run can still be given up. Each value of the segment has a tensor
// (whose memory it is) and a content (the node that computes its present elements). An in-place operator
// gives all values with the same memory a new content; at the end, the last content of each input becomes a
// Write of the graph. After a write to a part of a tensor, other views of that memory are stale: reading one
// refuses the segment.
//
// Owned by the graph builder, valid while it builds. No GIL.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

class WriteTracker {
 public:
  // `contentOf`: by value.
  WriteTracker(TensorGraph& graph, std::vector<NodeId>& contentOf)
      : graph_(graph),
        contentOf_(contentOf),
        tensorOf_(contentOf.size(), ir::kNone),
        stale_(contentOf.size()) {}

  // The value is an input or a view of one: this node, whose content it has unless there is another.
  void setTensor(ir::ValueId value, NodeId tensor) { tensorOf_[value] = tensor; }
  // ... or the same tensor as another value.
  void setAlias(ir::ValueId value, ir::ValueId other);
  // kNone: the segment made it.
  NodeId tensorOf(ir::ValueId value) const { return tensorOf_[value]; }
  // Has it been written to?
  bool isWritten(ir::ValueId value) const {
    return tensorOf_[value] != ir::kNone && contentOf_[value] != tensorOf_[value];
  }
  // May nothing read it any more?
  bool isStale(ir::ValueId value) const { return stale_[value]; }
  void setStale(ir::ValueId value) { stale_[value] = true; }
  // Somebody unknown may look at the value's memory from here on.
  void noteEscape(ir::ValueId value);
  // ... or somebody looks at that of a node that the segment made.
  void noteView(NodeId node) { viewed_.insert(node); }
  bool hasViews(NodeId node) const { return viewed_.contains(node); }

  // May a write to one value change what is read of the other one meanwhile? Such a result hangs on the order
  // in which the elements are written, which is ATen's own. The same tensor does not count.
  bool mayOverlap(ir::ValueId target, ir::ValueId other) const;
  // Can the value's memory be written to at all?
  bool mayWrite(ir::ValueId value) const;
  // From here on `content` is what the value's memory holds: it lies like the tensor, or is contiguous.
  void write(ir::ValueId value, NodeId content);
  // What is left to store goes into the graph.
  void finish();

 private:
  struct Pending {
    NodeId tensor = ir::kNone;
    NodeId content = ir::kNone;
  };
  static bool sameLayout(const Node& a, const Node& b) {
    return a.sizes == b.sizes && a.strides == b.strides;
  }
  bool isSame(NodeId a, NodeId b) const;
  NodeId placed(ir::ValueId value) const;

  TensorGraph& graph_;
  std::vector<NodeId>& contentOf_;
  std::vector<NodeId> tensorOf_;
  std::vector<bool> stale_;
  std::unordered_set<NodeId> shared_;  // inputs
  std::unordered_set<NodeId> viewed_;
  std::vector<Pending> pending_;                 // in the order of the program
  std::unordered_map<NodeId, uint32_t> counts_;  // of operators that wrote to an input
};

}  // namespace kintsugi::passes
