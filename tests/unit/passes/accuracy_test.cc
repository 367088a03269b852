// The table of bounds names every elementary function that native code computes in its own way.
#include "passes/accuracy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "passes/build_graph.h"

namespace kintsugi::passes {
namespace {

TEST(Accuracy, NamesAllFunctions) {
  // Of several tensors: multiply-adds, which are ATen's in every bit.
  const std::set<std::string_view> sums = {"aten.addcmul.default", "aten.addcdiv.default",
                                           "aten.lerp.Scalar"};
  for (const Decomposition& row : pointwiseDecompositions()) {
    const bool bounded = std::any_of(kAccuracies.begin(), kAccuracies.end(),
                                     [&](const Accuracy& bound) { return bound.name == row.name; });
    EXPECT_TRUE(row.exact || bounded || sums.contains(row.name)) << row.name;
  }
  for (const Accuracy& bound : kAccuracies) {
    EXPECT_NE(findDecomposition(bound.name), nullptr) << bound.name;
    EXPECT_GE(bound.ulp, 0.5) << bound.name;
  }
}

}  // namespace
}  // namespace kintsugi::passes
