// The rows of operators name a bound for every elementary function that native code computes in its own way.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "passes/operator_rules.h"

namespace kintsugi::passes {
namespace {

using ops::Operator;

TEST(Accuracy, NamesAllFunctions) {
  // Of several tensors: multiply-adds, which are ATen's in every bit (test_bound_of_sums_of_several_tensors).
  const std::set<Operator> sums = {Operator::kAddcmul, Operator::kAddcdiv, Operator::kLerpScalar};
  size_t bounded = 0;
  for (const ops::OperatorInfo& row : ops::operators()) {
    const Decomposition* made = decompositionOf(row.id);
    const bool known =
        std::ranges::any_of(ops::accuracies(), [&](const auto& b) { return b.name == row.name; });
    bounded += known ? 1 : 0;
    if (made != nullptr && made->pointwise) {
      EXPECT_TRUE(made->exact || known || sums.contains(row.id)) << row.name;
    }
  }
  EXPECT_GT(bounded, 10U);
  for (const ops::Accuracy& bound : ops::accuracies()) {
    EXPECT_NE(decompositionOf(ops::find(bound.name)), nullptr) << bound.name;
    EXPECT_GE(bound.ulp, 0.5) << bound.name;
  }
}

}  // namespace
}  // namespace kintsugi::passes
