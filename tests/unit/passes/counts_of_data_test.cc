#include "passes/counts_of_data.h"

#include <gtest/gtest.h>

#include <string_view>

namespace kintsugi::passes {
namespace {

using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;

OperatorTraits traitsOf(std::string_view name) {
  OperatorTraits traits;
  traits.sizesOfData = name == "aten.nonzero.default";
  traits.sizesFromMask = name == "aten.index.Tensor";
  traits.countOfSizes = name == "aten.unbind.int";
  return traits;
}

// `%1 = name %0` for each name, of tensors whose sizes are open or known.
class Chain {
 public:
  Chain() {
    trace_.metas = {ir::TensorDesc::packed(ir::DType::kF32, {4}),
                    ir::TensorDesc::packed(ir::DType::kF32, {ir::kAnySize})};
    value_ = append(Op::kInput, Operand::source(0), {}, TypeKind::kTensor, true);
  }
  Chain& then(std::string_view name, bool open = true) {
    value_ = append(Op::kAten, Operand::value(value_), name, TypeKind::kTensor, open);
    return *this;
  }
  Chain& size() {
    value_ = append(Op::kSize, Operand::value(value_), {}, TypeKind::kInt, true);
    return *this;
  }
  bool lastCountsData() const { return findCountsOfData(trace_, traitsOf).back(); }

 private:
  ValueId append(Op op, Operand operand, std::string_view name, TypeKind kind, bool open) {
    const ir::Type type{kind, kind == TypeKind::kTensor ? ir::MetaId{open} : ir::kNone};
    const size_t at = trace_.append(op, {&operand, 1}, {&type, 1}, ir::kNone);
    if (op == Op::kAten) {
      trace_.code[at].opName = static_cast<uint32_t>(trace_.opNames.size());
      trace_.opNames.emplace_back(name);
    }
    return trace_.code[at].firstResult;
  }

  ir::Trace trace_;
  ValueId value_ = 0;
};

TEST(CountsOfDataTest, DirectlyAndThroughOthers) {
  EXPECT_TRUE(Chain().then("aten.nonzero.default").then("aten.unbind.int").lastCountsData());
  EXPECT_TRUE(Chain()
                  .then("aten.nonzero.default")
                  .then("aten.relu.default")
                  .then("aten.unbind.int")
                  .lastCountsData());
  EXPECT_TRUE(Chain().then("aten.index.Tensor").then("aten.unbind.int").lastCountsData());
}

TEST(CountsOfDataTest, ThroughNumbers) {
  EXPECT_TRUE(Chain()
                  .then("aten.nonzero.default")
                  .size()
                  .then("aten.zeros.default")
                  .then("aten.unbind.int")
                  .lastCountsData());
}

TEST(CountsOfDataTest, SizesOfInputsAreNotOfData) {
  EXPECT_FALSE(Chain().then("aten.unbind.int").lastCountsData());
  EXPECT_FALSE(Chain().then("aten.relu.default").then("aten.unbind.int").lastCountsData());
}

TEST(CountsOfDataTest, KnownSizesEndIt) {
  EXPECT_FALSE(Chain()
                   .then("aten.nonzero.default")
                   .then("aten.sum.default", false)
                   .then("aten.unbind.int")
                   .lastCountsData());
  EXPECT_FALSE(Chain().then("aten.index.Tensor", false).then("aten.unbind.int").lastCountsData());
}

TEST(CountsOfDataTest, OthersGiveTheSameNumberAlways) {
  EXPECT_FALSE(Chain().then("aten.nonzero.default").then("aten.relu.default").lastCountsData());
}

}  // namespace
}  // namespace kintsugi::passes
