#include "support/exact_compare.h"

#include <gtest/gtest.h>

#include <limits>

namespace kintsugi {
namespace {

using Order = std::partial_ordering;
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ExactCompare, NumbersThatBothTypesHold) {
  EXPECT_EQ(compareExactly(0, 0.0), Order::equivalent);
  EXPECT_EQ(compareExactly(0, -0.0), Order::equivalent);
  EXPECT_EQ(compareExactly(3, 2.0), Order::greater);
  EXPECT_EQ(compareExactly(-3, -2.0), Order::less);
}

TEST(ExactCompare, FractionsOnBothSidesOfZero) {
  EXPECT_EQ(compareExactly(0, 0.5), Order::less);
  EXPECT_EQ(compareExactly(0, -0.5), Order::greater);
  EXPECT_EQ(compareExactly(2, 2.5), Order::less);
  EXPECT_EQ(compareExactly(-2, -2.5), Order::greater);
  EXPECT_EQ(compareExactly(0, std::numeric_limits<double>::denorm_min()), Order::less);
  EXPECT_EQ(compareExactly(0, -std::numeric_limits<double>::denorm_min()), Order::greater);
}

// Rounded to a float, all three of these ints are the same number.
TEST(ExactCompare, IntsThatAreNoFloats) {
  constexpr int64_t kEdge = int64_t{1} << 53;
  for (const int64_t sign : {1, -1}) {
    const auto up = sign > 0 ? Order::greater : Order::less, down = sign > 0 ? Order::less : Order::greater;
    const double edge = static_cast<double>(sign) * 0x1p53;
    EXPECT_EQ(compareExactly(sign * (kEdge - 1), edge), down);
    EXPECT_EQ(compareExactly(sign * kEdge, edge), Order::equivalent);
    EXPECT_EQ(compareExactly(sign * (kEdge + 1), edge), up);
    EXPECT_EQ(compareExactly(sign * (kEdge - 1), static_cast<double>(sign) * (0x1p53 - 1)),
              Order::equivalent);
    EXPECT_EQ(compareExactly(sign * (kEdge + 1), static_cast<double>(sign) * (0x1p53 + 2)), down);
  }
}

TEST(ExactCompare, EndsOfTheIntegers) {
  EXPECT_EQ(compareExactly(kMost, 0x1p63), Order::less);
  EXPECT_EQ(compareExactly(kMost, 0x1p63 - 1024), Order::greater);
  EXPECT_EQ(compareExactly(kLeast, -0x1p63), Order::equivalent);
  EXPECT_EQ(compareExactly(kLeast + 1, -0x1p63), Order::greater);
  EXPECT_EQ(compareExactly(kLeast, -0x1p63 - 2048), Order::greater);
}

TEST(ExactCompare, WhatIsNotFinite) {
  for (const int64_t i : {kLeast, int64_t{0}, kMost}) {
    EXPECT_EQ(compareExactly(i, kInfinity), Order::less);
    EXPECT_EQ(compareExactly(i, -kInfinity), Order::greater);
    EXPECT_EQ(compareExactly(i, std::numeric_limits<double>::quiet_NaN()), Order::unordered);
  }
}

}  // namespace
}  // namespace kintsugi
