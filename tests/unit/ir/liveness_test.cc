#include "ir/liveness.h"

#include <gtest/gtest.h>

#include "ir/parser.h"

// The rules are file tests (passes/liveness_*.ktir); here is what text can't express.
namespace kintsugi::ir {
namespace {

TEST(Liveness, SurvivesNumbersOutsideTheirTables) {
  const Trace trace = *parseTrace(
      "trace @f:1 f {\n %0 = my.op %9, @9, $9 : int snap !9\n ret %0 snap !0\n"
      " snap !0 { parent=!7 code=#0 func=#0 pc=1 locals=[%8] stack=[] }\n}\n");
  EXPECT_EQ(computeLiveness(trace).lastUse, (std::vector<uint32_t>{1}));
  EXPECT_EQ(computeLiveness(trace, {{5, 0}, {0, 0}, {5, 0}, {5, 0}}).lastUse, (std::vector<uint32_t>{1}));
}

TEST(Liveness, NeedsNoStackForDeepRecipes) {
  Trace trace;
  const Type object{TypeKind::kObject, kNone};
  trace.append(Op::kAten, {}, {&object, 1}, kNone);
  Recipe recipe;
  recipe.parts = {Operand::value(0)};
  RecipeId last = trace.addRecipe(recipe);
  for (int i = 0; i < 200000; ++i) {
    recipe.parts = {Operand::recipe(last)};
    last = trace.addRecipe(recipe);
  }
  const Operand built = Operand::recipe(last);
  trace.append(Op::kRet, {&built, 1}, {}, kNone);
  EXPECT_EQ(computeLiveness(trace).lastUse, (std::vector<uint32_t>{1}));
}

TEST(Liveness, EmptyTrace) { EXPECT_TRUE(computeLiveness(Trace{}).lastUse.empty()); }

}  // namespace
}  // namespace kintsugi::ir
