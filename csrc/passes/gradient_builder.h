// What derivative rules work with: one operator of a segment, the gradients of its results, and makers for
// the operators that the backward consists of.
//
// Rules follow autograd's own formulas, and keep for the backward what autograd would keep: the version
// counters of those tensors are what eager mode checks. A rule gives each argument that wants one a gradient;
// gradients of one value are summed. Values are those of GradientGraph::trace. No GIL.
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

  GradientBuilder(GradientGraph& graph, std::vector<std::vector<uint32_t>>& before)
      : graph_(graph),
        trace_(graph.trace),
        before_(before),
        gradientOf_(graph.trace.values.size(), ir::kNone) {}

  // Starts with another operator: the `position`-th of the forward. `kept`: what eager mode keeps of it.
  void start(size_t position, std::vector<KeptByEager> kept);

  // The operator
  std::string_view name() const { return trace_.opNames[ins_.opName]; }
  size_t count() const { return ins_.operandCount; }
  const Operand& operand(size_t k) const { return trace_.operandsOf(ins_)[k]; }
  std::vector<Operand> elements(size_t k) const;  // of a list
  bool isNone(size_t k) const { return k >= count() || operand(k).kind == ir::OperandKind::kNone; }
  V tensor(size_t k) const { return k < count() && operand(k).isValue() ? operand(k).id : ir::kNone; }
  bool isNumber(size_t k) const;
  double number(size_t k) const;
  int64_t integer(size_t k) const { return operand(k).i; }
  std::vector<int64_t> ints(size_t k) const;
  std::string_view text(size_t k) const;
  V result(size_t r = 0) const { return ins_.firstResult + static_cast<V>(r); }
  size_t resultCount() const { return ins_.resultCount; }
  V gradient(size_t r = 0) const { return gradientOf(result(r)); }  // kNone: none arrives
  V gradientOf(V value) const { return value < gradientOf_.size() ? gradientOf_[value] : ir::kNone; }
  bool isActive(V value) const;  // autograd follows it
  const ir::Type& typeOf(V value) const { return trace_.values[value]; }
  ir::Type typeFor(ir::TensorDesc meta) {
    return {ir::TypeKind::kTensor, trace_.internMeta(std::move(meta))};
  }
  bool needsGradient(size_t k) const { return isActive(tensor(k)); }
  // The argument as eager mode keeps it, which is what the backward may read: itself, a view, or a copy.
  V saved(size_t k);
  // May others write to the tensor after the segment?
  bool isSeen(V value) const;
  const ir::TensorDesc& meta(V value) const { return trace_.metas[trace_.values[value].meta]; }
  // Copies: what is made later moves the metadata.
  std::vector<int64_t> sizes(V value) const { return meta(value).sizes; }
  ir::DType dtype(V value) const { return meta(value).dtype; }
  size_t rank(V value) const { return meta(value).sizes.size(); }
  size_t dimOf(int64_t dim, V value) const;  // counted from the first

  // Adds to the gradient of a value; sizes and types are brought in line first.
  void accumulateInto(V value, V gradient);
  void accumulateGradient(size_t k, V gradient) { accumulateInto(tensor(k), gradient); }

  // While one lives, operators are made in front of the one at hand, in the forward.
  class InForward {
   public:
    explicit InForward(GradientBuilder& builder) : builder_(builder) { builder.inForward_ = true; }
    ~InForward() { builder_.inForward_ = false; }
    InForward(const InForward&) = delete;

   private:
    GradientBuilder& builder_;
  };

  // Makers. What they make is contiguous, views apart.
  V make(Operator op, std::span<const Operand> operands, ir::TensorDesc meta);
  V make(Operator op, std::initializer_list<Operand> operands, ir::TensorDesc meta) {
    return make(op, std::span(operands.begin(), operands.size()), std::move(meta));
  }
  // Element by element, as wide as the tensors among the operands together, of the first one's type.
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
  V sumTo(V a, std::vector<int64_t> sizes);  // over what had been broadcast
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

  // The operator is run with autograd, which gives its derivative. Where no rule is known, or none fits.
  bool tape();
  // Another operator takes its place in the forward; the results of the one at hand are its first ones. Gives
  // the first.
  V replace(Operator op, std::span<const Operand> operands, std::span<const ir::Type> types) {
    return replace(ops::nameOf(op), operands, types);
  }
  V replace(std::string_view name, std::span<const Operand> operands, std::span<const ir::Type> types);
  // Several results; gives the first.
  V makeMany(Operator op, std::span<const Operand> operands, std::span<const ir::TensorDesc> metas);

 private:
  size_t append(std::string_view name, std::span<const Operand> operands, std::span<const ir::Type> types);

  GradientGraph& graph_;
  ir::Trace& trace_;
  std::vector<std::vector<uint32_t>>& before_;  // by position in the forward: what is made in front of it
  std::vector<V> gradientOf_;
  ir::Instruction ins_;
  size_t position_ = 0;
  std::vector<KeptByEager> kept_;
  bool inForward_ = false;
};

// Batch norm in training, of which the forward has computed the mean of each channel and one by the
// deviation.
struct BatchNormValues {
  ir::ValueId input, weight, bias, mean, scale;
};
void batchNorm(GradientBuilder& b, const BatchNormValues& values);

}  // namespace kintsugi::passes
