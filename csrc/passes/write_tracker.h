// Writes to memory that the program sees, while the graph of a segment is built.
//
//   %3 = aten.mul_.Tensor %0, 2        %0 stays the same tensor; its content is a new node
//   %4 = aten.add.Tensor %0, %1, 1     reads that node
//   segment.end [%3]                   returns the tensor of %0
//
// Native code writes to inputs at the very end of a run. Until then a node that reads an input reads what was
// there at the beginning, and a run can still be given up. Each value of the segment has a *tensor* (whose
// memory it is) and a *content* (the node that computes its present elements). An in-place operator gives a
// new content to all values with the same memory; at the end, the last content of each input becomes a Write
// of the graph. After a write to a part of a tensor, other views of that memory are *stale*: reading one
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

  // The value is an input or a view of one, which is the node `tensor`. That is its content, too, until a
  // write.
  void setTensor(ir::ValueId value, NodeId tensor) { tensorOf_[value] = tensor; }
  // The value is the same tensor as `other`, with the same content.
  void setAlias(ir::ValueId value, ir::ValueId other);
  // kNone: the segment made it.
  NodeId tensorOf(ir::ValueId value) const { return tensorOf_[value]; }
  // Has it been written to?
  bool isWritten(ir::ValueId value) const {
    return tensorOf_[value] != ir::kNone && contentOf_[value] != tensorOf_[value];
  }
  // Is its content unknown, because an overlapping view was written to?
  bool isStale(ir::ValueId value) const { return stale_[value]; }
  void setStale(ir::ValueId value) { stale_[value] = true; }
  // From here on, an unknown operator may hold a view of the value's memory. It can't be written to any more.
  void noteEscape(ir::ValueId value);
  // The same for the memory of a node that the segment made.
  void noteView(NodeId node) { viewed_.insert(node); }
  bool hasViews(NodeId node) const { return viewed_.contains(node); }

  // May a write to `target` change elements of `other` while they are being read (`x[1:].add_(x[:-1])`)? The
  // result would depend on the order in which ATen writes the elements. False for the very same tensor.
  bool mayOverlap(ir::ValueId target, ir::ValueId other) const;
  // Can native code write to the value's memory? It has to be an input's, with one place for each element.
  bool mayWrite(ir::ValueId value) const;
  // From here on `content` is what the value's memory holds. It has the tensor's strides, or is contiguous.
  void write(ir::ValueId value, NodeId content);
  // Adds a Write to the graph for each content that is left to store.
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
  std::unordered_set<NodeId> shared_;            // inputs whose memory escaped
  std::unordered_set<NodeId> viewed_;            // nodes of the segment whose memory escaped
  std::vector<Pending> pending_;                 // in the order of the program
  std::unordered_map<NodeId, uint32_t> counts_;  // of operators that wrote to an input
};

}  // namespace kintsugi::passes
