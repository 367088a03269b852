#include "capture/finalizer_uses.h"

#include <gtest/gtest.h>

namespace kintsugi::capture {
namespace {

using guard::SourceKind;
using ir::Operand;

constexpr ir::ConstId kLetGo = 0;
constexpr ir::ConstId kMake = 1;

// %0 = call make;  %1 = call let_go %0;  ret `result`
guard::Document documentReturning(Operand result) {
  guard::Document document;
  ir::Trace& trace = document.trace;
  const ir::Type object[] = {{ir::TypeKind::kObject, ir::kNone}};
  const Operand make[] = {Operand::constant(kMake)};
  const Operand drop[] = {Operand::constant(kLetGo), Operand::value(0)};
  trace.append(ir::Op::kCall, make, object, ir::kNone);
  trace.append(ir::Op::kCall, drop, object, ir::kNone);
  trace.append(ir::Op::kRet, {&result, 1}, {}, ir::kNone);
  document.sources.nodes.push_back({SourceKind::kValue, ir::kNone, ir::kNone, 0, 1});
  return document;
}

TEST(FinalizerUses, EndWhereTheFinalizerRuns) {
  EXPECT_TRUE(usesEndAtFinalizers(documentReturning(Operand::constant(kMake)), kLetGo));
  EXPECT_TRUE(usesEndAtFinalizers(documentReturning(Operand::value(1)), kLetGo));
}

TEST(FinalizerUses, SeeAValueThatIsUsedBehind) {
  EXPECT_FALSE(usesEndAtFinalizers(documentReturning(Operand::value(0)), kLetGo));
  EXPECT_FALSE(usesEndAtFinalizers(documentReturning(Operand::source(0)), kLetGo));
}

TEST(FinalizerUses, FindStepsInWhatIsReturned) {
  guard::Document document = documentReturning(Operand::source(0));
  EXPECT_EQ(returnedSteps(document), (std::vector<ir::ValueId>{0}));
  ir::Recipe tuple;
  tuple.parts = {Operand::source(0), Operand::constant(kMake)};
  const ir::RecipeId id = document.trace.addRecipe(tuple);
  const Operand built = Operand::recipe(id);
  document.trace.append(ir::Op::kRet, {&built, 1}, {}, ir::kNone);
  EXPECT_EQ(returnedSteps(document), (std::vector<ir::ValueId>{0}));
  EXPECT_TRUE(returnedSteps(documentReturning(Operand::constant(kMake))).empty());
}

}  // namespace
}  // namespace kintsugi::capture
