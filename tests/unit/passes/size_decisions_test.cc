#include "passes/size_decisions.h"

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
  traits.sizesFromMask = name == "aten.index.Tensor";  // without indices that are known to be none
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
  Chain& size(Op op = Op::kSize) {
    value_ = append(op, Operand::value(value_), {}, TypeKind::kInt, true);
    return *this;
  }
  Chain& read(std::string_view name) {
    value_ = append(Op::kAten, Operand::value(value_), name, TypeKind::kInt, true);
    return *this;
  }
  Chain& number(Op op) {
    const Operand operands[] = {Operand::value(value_), Operand::integer(1)};
    const ir::Type type{op == Op::kToFloat ? TypeKind::kFloat : TypeKind::kInt, ir::kNone};
    value_ = trace_.code[trace_.append(op, operands, {&type, 1}, ir::kNone)].firstResult;
    return *this;
  }
  Chain& guard() {
    const Operand operands[] = {Operand::value(value_), Operand::integer(4)};
    trace_.append(Op::kGuardValue, operands, {}, ir::kNone);
    return *this;
  }
  Chain& meta(bool contiguous = false) {
    trace_.metas.push_back(trace_.metas[1]);
    trace_.metas.back().contiguity = contiguous ? ir::Contiguity::kContiguous : ir::Contiguity::kEither;
    const auto number = static_cast<int64_t>(trace_.metas.size() - 1);
    const Operand operands[] = {Operand::value(value_), Operand::integer(number)};
    trace_.append(Op::kGuardMeta, operands, {}, ir::kNone);
    return *this;
  }
  bool lastIsBySymbols() const { return findSizeDecisions(trace_, traitsOf).bySymbols.back(); }
  bool lastCountsData() const { return findSizeDecisions(trace_, traitsOf).byData.back(); }

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

TEST(SizeDecisionsTest, DirectlyAndThroughOthers) {
  EXPECT_TRUE(Chain().then("aten.nonzero.default").then("aten.unbind.int").lastCountsData());
  EXPECT_TRUE(Chain()
                  .then("aten.nonzero.default")
                  .then("aten.relu.default")
                  .then("aten.unbind.int")
                  .lastCountsData());
  EXPECT_TRUE(Chain().then("aten.index.Tensor").then("aten.unbind.int").lastCountsData());
}

TEST(SizeDecisionsTest, ThroughNumbers) {
  EXPECT_TRUE(Chain()
                  .then("aten.nonzero.default")
                  .size()
                  .then("aten.zeros.default")
                  .then("aten.unbind.int")
                  .lastCountsData());
}

TEST(SizeDecisionsTest, SizesOfInputsAreNotOfData) {
  EXPECT_FALSE(Chain().then("aten.unbind.int").lastCountsData());
  EXPECT_FALSE(Chain().then("aten.relu.default").then("aten.unbind.int").lastCountsData());
}

TEST(SizeDecisionsTest, KnownSizesEndIt) {
  EXPECT_FALSE(Chain()
                   .then("aten.nonzero.default")
                   .then("aten.sum.default", false)
                   .then("aten.unbind.int")
                   .lastCountsData());
  EXPECT_FALSE(Chain().then("aten.index.Tensor", false).then("aten.unbind.int").lastCountsData());
}

TEST(SizeDecisionsTest, GuardsOfSizesAreBySymbols) {
  EXPECT_TRUE(Chain().size().guard().lastIsBySymbols());
  EXPECT_TRUE(Chain().then("aten.relu.default").size().guard().lastIsBySymbols());
  EXPECT_TRUE(Chain().then("aten.relu.default").size().number(Op::kIntAdd).guard().lastIsBySymbols());
}

TEST(SizeDecisionsTest, FloatsAndStridesAreNot) {
  EXPECT_FALSE(Chain().size().number(Op::kToFloat).guard().lastIsBySymbols());
  EXPECT_FALSE(Chain().size().number(Op::kToFloat).number(Op::kToInt).guard().lastIsBySymbols());
  EXPECT_FALSE(Chain().size(Op::kStride).guard().lastIsBySymbols());
  EXPECT_FALSE(Chain().size(Op::kStride).number(Op::kIntAdd).guard().lastIsBySymbols());
}

TEST(SizeDecisionsTest, LayoutOfWhatIsNotKnown) {
  EXPECT_TRUE(Chain().then("aten.relu.default").meta(true).lastIsBySymbols());
  EXPECT_FALSE(Chain().then("aten.frexp.Tensor").meta(true).lastIsBySymbols());
  EXPECT_FALSE(
      Chain().then("aten.batch_norm.default").then("aten.relu.default").meta(true).lastIsBySymbols());
  EXPECT_TRUE(Chain().then("aten.frexp.Tensor").meta().lastIsBySymbols());
}

TEST(SizeDecisionsTest, GuardsOfDataAreNot) {
  EXPECT_FALSE(Chain().then("aten.nonzero.default").size().guard().lastIsBySymbols());
  EXPECT_FALSE(Chain().read("aten.item.default").guard().lastIsBySymbols());
  EXPECT_FALSE(Chain().read("aten.item.default").number(Op::kIntAdd).guard().lastIsBySymbols());
}

TEST(SizeDecisionsTest, GuardsOfMetadataOfWhatIsMade) {
  EXPECT_TRUE(Chain().then("aten.relu.default").meta().lastIsBySymbols());
  EXPECT_FALSE(Chain().meta().lastIsBySymbols());  // an input
  EXPECT_FALSE(Chain().then("aten.nonzero.default").meta().lastIsBySymbols());
}

TEST(SizeDecisionsTest, OthersGiveTheSameNumberAlways) {
  EXPECT_FALSE(Chain().then("aten.nonzero.default").then("aten.relu.default").lastCountsData());
}

}  // namespace
}  // namespace kintsugi::passes
