// Makes the tensor graph of a segment: tables of decompositions, views, calls for all the rest.
//
//   %2 = aten.layer_norm.default %0, ...     becomes reduce.sum, mul, sub, rsqrt ... (decomposition)
//   %3 = aten.transpose.int %2, 0, 1         becomes a view of %2
//   %4 = aten.sort.default %3                becomes a call of the operator
//
// A segment is refused, with a reason, if a graph of values can't express it: it draws random numbers, or it
// writes to a tensor that may have unknown views. In-place operators become new values; the last content of
// an input is stored to its memory (passes/write_tracker.h). Sizes that vary are symbols (passes/size.h):
// those of inputs and of results of calls; needs a SizeScope. Pure functions, no GIL.
#pragma once

#include <initializer_list>
#include <span>

#include "ops/gelu_form.h"
#include "passes/segments.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

struct GraphOptions {
  OperatorTraitsFn traits = traitsByName;
  bool strict = false;     // only what gives ATen's bits
  bool callsOnly = false;  // nothing is decomposed
  bool products = false;   // there are matrix products without the dispatcher
  bool tiles = true;       // matrix products may be kernels of our own
  bool attention = true;   // attention may be a kernel
  ops::GeluForms gelu;
};

// `trace` is one segment (passes/extract_segment.h). Without a graph, `reason` says why.
std::optional<TensorGraph> buildGraph(const ir::Trace& trace, const GraphOptions& options,
                                      std::string& reason);

// Of a value of the trace whose sizes are known, or were seen (TensorDesc::seen()). Null: nothing is known.
const ir::TensorDesc* metaOf(const ir::Trace& trace, ir::ValueId value);
// As they were seen.
const std::vector<int64_t>& sizeHints(const ir::TensorDesc& meta);
std::vector<int64_t> strideHints(const ir::TensorDesc& meta);

// What a row of the tables works with: one instruction, and the graph so far. Each maker returns kNone, and
// the instruction becomes a call, once something does not fit.
class Decomposer {
 public:
  Decomposer(const ir::Trace& trace, TensorGraph& graph, const std::vector<NodeId>& nodeOf,
             const GraphOptions& options)
      : trace_(trace), graph_(graph), nodeOf_(nodeOf), strict_(options.strict), gelu_(options.gelu) {}

  // Makes this the current instruction; `result`: the metadata that its result has to have.
  void start(const ir::Instruction& instruction, const ir::TensorDesc* result);
  // Starts with operands without an instruction, for a result with the sizes and type of `like`.
  void start(std::span<const ir::Operand> operands, const Node& like);

  // Operands
  size_t count() const { return operands_.size(); }
  const ir::Operand& operand(size_t k) const { return operands_[k]; }
  bool isNone(size_t k) const { return k >= operands_.size() || operands_[k].kind == ir::OperandKind::kNone; }
  NodeId tensor(size_t k);                         // an operand that is a tensor
  std::vector<NodeId> tensors(size_t k);           // an operand that is a list of tensors
  std::pair<size_t, NodeId> onlyTensor(size_t k);  // a list of nones and one tensor: its position, and it
  std::optional<double> number(size_t k) const;    // an operand that is a number
  double number(size_t k, double otherwise) const;
  bool isComputed(size_t k) const;  // an operand that is a number which each run computes: only as() takes it
  bool flag(size_t k) const { return !isNone(k) && operands_[k].i != 0; }
  std::string_view text(size_t k) const;
  std::vector<int64_t> ints(size_t k);   // a list of ints, or one
  std::vector<double> floats(size_t k);  // a list of floats
  NodeId as(size_t k, Elem elem);        // a tensor or a number as an element type
  // The operand, or the number `otherwise` if it is none.
  NodeId as(size_t k, Elem elem, double otherwise) {
    return isNone(k) ? constant(otherwise, elem) : as(k, elem);
  }

  // The result to make
  Elem elem() const { return elem_; }  // of the result
  const std::vector<int64_t>& sizes() const { return sizes_; }

  // Makers
  NodeId constant(double value, Elem elem);
  NodeId point(Core op, Elem elem, std::initializer_list<NodeId> args);
  NodeId cast(NodeId node, Elem elem);
  // Reduces the `last` dimensions in front of the `trailing` ones, which stay.
  NodeId reduce(Core op, NodeId arg, size_t last, size_t trailing = 0);
  // Makes other sizes and strides on the memory of a node; `offset` in elements.
  NodeId view(NodeId base, std::vector<Size> sizes, std::vector<Size> strides, int64_t offset = 0);
  // Makes a bounded read of `view`: `otherwise` outside of `bounds`. f32, and of the result's size.
  NodeId part(NodeId view, NodeId otherwise, std::vector<PartBound> bounds);
  // Makes a read of `view`, whose stride is 0 where `index` varies, at the places along `indexed` that
  // `index` names.
  NodeId take(NodeId view, NodeId index, IndexedDim indexed);
  // Concatenates parts of the result's element type. Where each begins has to be the same in every run.
  NodeId join(std::vector<NodeId> parts, uint32_t dim, bool stacked);
  NodeId reshape(NodeId base, std::vector<Size> sizes);         // of a contiguous one
  NodeId broadcastDim(NodeId vector, size_t dim, size_t rank);  // a vector along one dimension
  NodeId fail() {
    failed_ = true;
    return ir::kNone;
  }
  bool failed() const { return failed_; }
  bool strict() const { return strict_; }
  const ops::GeluForms& geluForms() const { return gelu_; }
  const Node& node(NodeId id) const { return graph_.nodes[id]; }

 private:
  NodeId computed(NodeId number, Elem elem);

  const ir::Trace& trace_;
  TensorGraph& graph_;
  const std::vector<NodeId>& nodeOf_;  // by value
  const bool strict_;
  const ops::GeluForms gelu_;
  std::span<const ir::Operand> operands_;
  Elem elem_ = Elem::kOther;
  std::vector<int64_t> sizes_;
  bool failed_ = false;
};

// Does an operator use only dtype and device of its first operand, not its elements (`x.new_ones(...)`)?
bool readsMetadataOnly(const ir::Trace& trace, const ir::Instruction& instruction);

// Do the operator's results never share memory with its arguments, and may it be dropped if they are unused?
bool isFreshOperator(std::string_view name);
// Where the results of a view operator begin in the memory of `base`, in elements. False: a result may be a
// copy.
bool findViews(const ir::Trace& trace, const ir::Instruction& instruction, const Node& base,
               std::vector<int64_t>& offsets);

}  // namespace kintsugi::passes
