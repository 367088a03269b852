#include "ir/printer.h"

#include <gtest/gtest.h>

#include "ir/equal.h"
#include "ir/parser.h"

namespace kintsugi::ir {
namespace {

TEST(Printer, PrintsOneInstruction) {
  Trace trace;
  const Operand one = Operand::integer(1);
  const Type tensor{TypeKind::kTensor, trace.internMeta(TensorDesc::packed(DType::kF32, {2}))};
  const size_t at = trace.append(Op::kAten, {&one, 1}, {&tensor, 1}, 3);
  trace.code[at].opName = trace.internOpName("aten.relu.default");
  EXPECT_EQ(printInstruction(trace, at), "%0 = aten.relu.default 1 : tensor<0> snap !3");
  EXPECT_EQ(printInstruction(trace, 7), "");
  EXPECT_EQ(printMeta(trace.metas[0]), "tensor<f32,[2],cpu>");
}

// A failed check dumps the trace that made it fail.
TEST(Printer, PrintsBrokenTraces) {
  Trace trace;
  trace.lists.push_back(Operand::make(OperandKind::kList, 0, 1));  // holds itself
  const std::vector<Operand> operands = {
      Operand::make(OperandKind::kStr, 5), Operand::make(OperandKind::kComplex, 5),
      Operand::make(OperandKind::kList, 5, 9), Operand::make(OperandKind::kList, 0, 1)};
  trace.append(Op::kAten, operands, {}, 0);
  trace.code.push_back({Op::kRet, kNone, 1000, 4, 7, 2, kNone});
  trace.states.push_back({});
  trace.states.back().firstSlot = 1000;
  trace.states.back().localCount = 5;
  const std::string text = print(trace);
  EXPECT_NE(text.find("aten ? ?, ?, ?, ["), std::string::npos) << text;
  EXPECT_NE(text.find("%7, %8 = ret ?"), std::string::npos) << text;
}

TEST(Printer, KnowsEveryName) {
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    EXPECT_EQ(findOp(opInfo(static_cast<Op>(i)).text), static_cast<Op>(i));
  }
  EXPECT_EQ(findOp("nothing"), std::nullopt);
  EXPECT_EQ(findRecipeKind("call"), RecipeKind::kCall);
  EXPECT_EQ(findRecipeKind("deque"), std::nullopt);
}

TEST(Equal, LooksThroughTheTables) {
  Trace a;
  Trace b;
  b.internString("unused");
  for (Trace* trace : {&a, &b}) {
    const std::vector<Operand> inner = {trace->stringOperand("x")};
    const std::vector<Operand> outer = {trace->listOperand(inner)};
    trace->append(Op::kRet, outer, {}, 0);
  }
  EXPECT_TRUE(equal(a, b));
  b.strings[1] = "y";
  EXPECT_FALSE(equal(a, b));
}

TEST(Equal, SeesEveryField) {
  const auto base = [] {
    return *parseTrace(
        "trace @f:1 f {\n meta 0 tensor<f32,[],cpu>\n const #0 \"a\"\n"
        " %0 = call #0, 1 kw=[\"k\"] : object snap !0\n ret %0 snap !0\n recipe @0 tuple #none [1]\n"
        " snap !0 { parent=none code=#0 func=#0 pc=1 locals=[1] stack=[2] then=replace 1 }\n}\n");
  };
  const auto differs = [&](auto&& change) {
    Trace other = base();
    change(other);
    return !equal(base(), other) && print(base()) != print(other);
  };
  EXPECT_TRUE(equal(base(), base()));
  EXPECT_TRUE(differs([](Trace& t) { t.file = "g"; }));
  EXPECT_TRUE(differs([](Trace& t) { t.line = 2; }));
  EXPECT_TRUE(differs([](Trace& t) { t.function = "g"; }));
  EXPECT_TRUE(differs([](Trace& t) { t.metas[0].isParam = true; }));
  EXPECT_TRUE(differs([](Trace& t) { t.constTexts[0] = "b"; }));
  EXPECT_TRUE(differs([](Trace& t) { ++t.constCount; }));
  EXPECT_TRUE(differs([](Trace& t) { t.values[0].kind = TypeKind::kInt; }));
  EXPECT_TRUE(differs([](Trace& t) { t.code[0].op = Op::kCallPure; }));
  EXPECT_TRUE(differs([](Trace& t) { t.code[0].snap = 1; }));
  EXPECT_TRUE(differs([](Trace& t) { t.code[0].kwCount = 0; }));
  EXPECT_TRUE(differs([](Trace& t) { t.operands[1].i = 2; }));
  EXPECT_TRUE(differs([](Trace& t) { t.operands[1] = Operand::boolean(true); }));
  EXPECT_TRUE(differs([](Trace& t) { t.recipes[0].kind = RecipeKind::kList; }));
  EXPECT_TRUE(differs([](Trace& t) { t.recipes[0].type = 0; }));
  EXPECT_TRUE(differs([](Trace& t) { t.recipes[0].parts.clear(); }));
  EXPECT_TRUE(differs([](Trace& t) { t.states[0].pc = 2; }));
  EXPECT_TRUE(differs([](Trace& t) { t.states[0].parent = 0; }));
  EXPECT_TRUE(differs([](Trace& t) { t.states[0].rebuildable = false; }));
  EXPECT_TRUE(differs([](Trace& t) { t.states[0].action = ReturnAction::kPush; }));
  EXPECT_TRUE(differs([](Trace& t) { t.states[0].replacement = Operand::integer(9); }));
  EXPECT_TRUE(differs([](Trace& t) { t.slots[1].i = 9; }));
}

TEST(Parser, ReportsDiagnostics) {
  const diag::Result<Trace> trace = parseTrace("trace @f:1 f {\n  ret 1 1\n}");
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().message(), "IR text, line 2, column 9: expected the end of the line");
}

}  // namespace
}  // namespace kintsugi::ir
