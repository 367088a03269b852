// What a derivative rule works with: one operator of a segment, the gradients of its results, and functions
// that append operators to the backward.
//
//   void sine(GradientBuilder& b) {                     // y = sin(x): dx = dy * cos(x)
//     if (!b.needsGradient(0)) return;
//     const auto x = GradientBuilder::val(b.saved(0));
//     const auto cosine = b.point(Operator::kCos, {x});
//     b.accumulateGradient(0, b.mul(GradientBuilder::val(b.gradient()), GradientBuilder::val(cosine)));
//   }
//
// A rule follows autograd's own formula, and reads in the backward only what autograd would save: eager mode
// checks the version counters of just these tensors. It gives a gradient to each argument that needs one;
// several gradients of one value are summed. Values are those of GradientGraph::trace.
//
// Owned by differentiate() while it runs; borrows the graph and the options. No GIL.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/gradient_graph.h"
#include "passes/kept_by_eager.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

class GradientBuilder {
 public:
  using V = ir::ValueId;
  using Operand = ir::Operand;
  using Operator = ops::Operator;

  GradientBuilder(GradientGraph& graph, const GradientOptions& options,
                  std::vector<std::vector<uint32_t>>& before)
      : graph_(graph),
        options_(options),
        trace_(graph.trace),
        before_(before),
        gradientOf_(graph.trace.values.size(), ir::kNone) {}

  // Makes the `position`-th operator of the forward the current one. `kept`: what eager mode saves of it.
  void start(size_t position, std::vector<KeptByEager> kept);

  const ops::ClampGradients& clamps() const { return options_.clamps; }

  // The current operator and its arguments.
  std::string_view name() const { return trace_.opNames[ins_.opName]; }
  size_t count() const { return ins_.operandCount; }
  const Operand& operand(size_t k) const { return trace_.operandsOf(ins_)[k]; }
  std::vector<Operand> elements(size_t k) const;  // operand `k` is a list: what is in it
  bool isNone(size_t k) const { return k >= count() || operand(k).kind == ir::OperandKind::kNone; }
  V tensor(size_t k) const { return k < count() && operand(k).isValue() ? operand(k).id : ir::kNone; }
  bool isNumber(size_t k) const;
  double number(size_t k) const;
  int64_t integer(size_t k) const { return operand(k).i; }
  std::vector<int64_t> ints(size_t k) const;
  std::string_view text(size_t k) const;
  V result(size_t r = 0) const { return ins_.firstResult + static_cast<V>(r); }
  size_t resultCount() const { return ins_.resultCount; }
  V gradient(size_t r = 0) const { return gradientOf(result(r)); }  // kNone: the result has none
  V gradientOf(V value) const { return value < gradientOf_.size() ? gradientOf_[value] : ir::kNone; }
  bool isActive(V value) const;  // it requires a gradient
  const ir::Type& typeOf(V value) const { return trace_.values[value]; }
  ir::Type typeFor(ir::TensorDesc meta) {
    return {ir::TypeKind::kTensor, trace_.internMeta(std::move(meta))};
  }
  bool needsGradient(size_t k) const { return isActive(tensor(k)); }
  // The argument in the form that eager mode saves (itself, a view, or a copy): what the backward may read.
  V saved(size_t k);
  // Can the program write to the tensor after the segment? True of inputs, outputs and views of them.
  bool isSeen(V value) const;
  const ir::TensorDesc& meta(V value) const { return trace_.metas[trace_.values[value].meta]; }
  // A copy, because appending an operator may move the table of metadata.
  std::vector<int64_t> sizes(V value) const { return meta(value).sizes; }
  ir::DType dtype(V value) const { return meta(value).dtype; }
  size_t rank(V value) const { return meta(value).sizes.size(); }
  size_t dimOf(int64_t dim, V value) const;  // a negative dimension counted from the first

  // Adds to the gradient of a value. First the new gradient is reduced to the value's sizes (it was
  // broadcast) and cast to its dtype.
  void accumulateInto(V value, V gradient);
  void accumulateGradient(size_t k, V gradient) { accumulateInto(tensor(k), gradient); }

  // While one lives, new operators go to the forward, in front of the current one.
  class InForward {
   public:
    explicit InForward(GradientBuilder& builder) : builder_(builder) { builder.inForward_ = true; }
    ~InForward() { builder_.inForward_ = false; }
    InForward(const InForward&) = delete;

   private:
    GradientBuilder& builder_;
  };

  // Each appends operators to the backward (or the forward: InForward). Results are contiguous, but for
  // views.
  V make(Operator op, std::span<const Operand> operands, ir::TensorDesc meta);
  V make(Operator op, std::initializer_list<Operand> operands, ir::TensorDesc meta) {
    return make(op, std::span(operands.begin(), operands.size()), std::move(meta));
  }
  // An elementwise operator. The result has the broadcast sizes of the tensors among the operands, and the
  // dtype of the first one unless `dtype` says another.
  V point(Operator op, std::initializer_list<Operand> operands, std::optional<ir::DType> dtype = {});
  V add(Operand a, Operand b) { return point(Operator::kAddTensor, {a, b, Operand::integer(1)}); }
  V sub(Operand a, Operand b) { return point(Operator::kSubTensor, {a, b, Operand::integer(1)}); }
  V mul(Operand a, Operand b) { return point(Operator::kMulTensor, {a, b}); }
  V div(Operand a, Operand b) { return point(Operator::kDivTensor, {a, b}); }
  V negative(V a) { return point(Operator::kNeg, {val(a)}); }
  enum class Comparison : uint8_t { kEq, kLt, kLe, kGt, kGe };
  V compare(V a, Comparison how, Operand b);
  V zeroWhere(V mask, V a);  // 0 where the mask holds
  V zeroUnless(V mask, V a);
  V cast(V a, ir::DType dtype);
  V sum(V a, std::vector<int64_t> dims, bool keep, bool mean = false);
  V sumTo(V a, std::vector<int64_t> sizes);  // undoes a broadcast: sums over the dimensions that it added
  V reshape(V a, std::vector<int64_t> sizes);
  V contiguous(V a);
  V transpose(V a, size_t d0, size_t d1);
  V permute(V a, const std::vector<int64_t>& dims);
  V expand(V a, std::vector<int64_t> sizes);
  V slice(V a, size_t dim, int64_t begin, int64_t end);
  V select(V a, size_t dim, int64_t index);
  V matmul(V a, V b);  // matrices, or batches of them
  V zeros(ir::DType dtype, std::vector<int64_t> sizes);
  V join(Operator op, const std::vector<V>& parts, size_t dim, std::vector<int64_t> sizes);

  Operand list(const std::vector<int64_t>& numbers);
  Operand list(const std::vector<V>& values);
  static Operand val(V value) { return Operand::value(value); }
  static Operand num(double value) { return Operand::number(value); }

  // Differentiates the current operator by a tape (see passes/gradient_graph.h). For operators without a
  // rule, and for calls that the rule does not cover.
  bool tape();
  // Replaces the current operator in the forward. The new one has its results, and may have more after them.
  // Returns the first.
  V replace(Operator op, std::span<const Operand> operands, std::span<const ir::Type> types) {
    return replace(ops::nameOf(op), operands, types);
  }
  V replace(std::string_view name, std::span<const Operand> operands, std::span<const ir::Type> types);
  // An operator with several results. Returns the first.
  V makeMany(Operator op, std::span<const Operand> operands, std::span<const ir::TensorDesc> metas);

 private:
  size_t append(std::string_view name, std::span<const Operand> operands, std::span<const ir::Type> types);

  GradientGraph& graph_;
  const GradientOptions& options_;
  ir::Trace& trace_;
  std::vector<std::vector<uint32_t>>& before_;  // by position in the forward: what was put in front of it
  std::vector<V> gradientOf_;
  ir::Instruction ins_;
  size_t position_ = 0;
  std::vector<KeptByEager> kept_;
  bool inForward_ = false;
};

// Batch norm in training mode. `mean` is the mean of each channel, `scale` is one divided by its standard
// deviation; the forward has computed both.
struct BatchNormValues {
  ir::ValueId input, weight, bias, mean, scale;
};
void batchNorm(GradientBuilder& b, const BatchNormValues& values);

}  // namespace kintsugi::passes
