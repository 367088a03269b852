#include "ir/trace.h"

#include <gtest/gtest.h>

namespace kintsugi::ir {
namespace {

TEST(Ops, EveryRowHasATextAndASignature) {
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    const OpInfo& info = opInfo(static_cast<Op>(i));
    EXPECT_NE(info.text[0], '\0') << i;
    EXPECT_NE(info.results[0], '\0') << info.text;
  }
  EXPECT_STREQ(opInfo(Op::kIntAdd).text, "int.add");
  EXPECT_EQ(opInfo(Op::kIntAdd).flags, kExit);
}

TEST(Trace, InternsStringsOnce) {
  Trace trace;
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < 5000; ++i) {
      ASSERT_EQ(trace.internString("s" + std::to_string(i)), i);
    }
  }
  EXPECT_EQ(trace.strings.size(), 5000u);
  EXPECT_EQ(trace.internString(""), 5000u);
}

TEST(Trace, InternsWhatWasAddedBehindItsBack) {
  Trace trace;
  trace.internOpName("aten.a.default");
  trace.opNames.push_back("aten.b.default");
  EXPECT_EQ(trace.internOpName("aten.b.default"), 1u);
  trace.opNames.clear();
  EXPECT_EQ(trace.internOpName("aten.b.default"), 0u);
}

TEST(Trace, InternsInACopyOnItsOwn) {
  Trace trace;
  trace.internString("a");
  Trace copy = trace;
  EXPECT_EQ(copy.internString("b"), 1u);
  EXPECT_EQ(trace.internString("c"), 1u);
  const Trace moved = std::move(copy);
  EXPECT_EQ(moved.strings, (std::vector<std::string>{"a", "b"}));
}

TEST(Trace, InternsMetadataByAllOfIt) {
  Trace trace;
  const TensorDesc meta = TensorDesc::packed(DType::kF32, {2, 3});
  EXPECT_EQ(trace.internMeta(meta), 0u);
  TensorDesc other = meta;
  other.strides = {1, 2};
  EXPECT_EQ(trace.internMeta(other), 1u);
  other.strides = meta.strides;
  other.requiresGrad = true;
  EXPECT_EQ(trace.internMeta(other), 2u);
  other.requiresGrad = false;
  other.isParam = true;
  EXPECT_EQ(trace.internMeta(other), 3u);
  other.hints.sizes = {2, 3};
  EXPECT_EQ(trace.internMeta(other), 4u);
  EXPECT_EQ(trace.internMeta(meta), 0u);
}

TEST(Trace, AppendsInstructions) {
  Trace trace;
  const Type tensor{TypeKind::kTensor, kNone};
  const Operand one = Operand::integer(1);
  const size_t first = trace.append(Op::kAten, {&one, 1}, std::vector<Type>{tensor, tensor}, 0);
  const size_t second = trace.append(Op::kAten, {}, {}, 0);
  EXPECT_EQ(trace.code[first].firstResult, 0u);
  EXPECT_EQ(trace.code[first].resultCount, 2u);
  EXPECT_EQ(trace.code[second].firstResult, kNone);
  EXPECT_EQ(trace.operandsOf(trace.code[first])[0].i, 1);
  EXPECT_EQ(trace.values.size(), 2u);
  EXPECT_EQ(trace.countOf(Op::kAten), 2u);
  EXPECT_EQ(trace.countOf(Op::kRet), 0u);
}

// What is appended may be a part of the table that grows.
TEST(Trace, AppendsItsOwnOperands) {
  Trace trace;
  const std::vector<Operand> operands = {Operand::integer(1), Operand::integer(2)};
  trace.append(Op::kAten, operands, {});
  for (int i = 0; i < 100; ++i) {
    trace.append(Op::kAten, trace.operandsOf(trace.code.back()), {});
  }
  EXPECT_EQ(trace.operandsOf(trace.code.back())[1].i, 2);
  Operand list = trace.listOperand(operands);
  for (int i = 0; i < 100; ++i) {
    list = trace.listOperand(trace.listOf(list));
  }
  EXPECT_EQ(trace.listOf(list)[1].i, 2);
}

TEST(Trace, AddsStates) {
  Trace trace;
  const std::vector<Operand> locals = {Operand::integer(1), Operand::null()};
  const std::vector<Operand> stack = {Operand::integer(3)};
  const StateId id = trace.addState(FrameState{}, locals, stack);
  EXPECT_EQ(trace.localsOf(trace.states[id]).size(), 2u);
  EXPECT_EQ(trace.localsOf(trace.states[id])[1].kind, OperandKind::kNull);
  EXPECT_EQ(trace.stackOf(trace.states[id])[0].i, 3);
}

#ifdef KINTSUGI_DEBUG
TEST(TraceDeathTest, ChecksOperandsInDebugBuilds) {
  Trace trace;
  EXPECT_DEATH(trace.append(Op::kGuardTrue, {}, {}), "has 0 operands, expected 1");
}
#endif

}  // namespace
}  // namespace kintsugi::ir
