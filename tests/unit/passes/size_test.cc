#include "passes/size.h"

#include <gtest/gtest.h>

namespace kintsugi::passes {
namespace {

TEST(Size, NumbersNeedNoTable) {
  EXPECT_EQ((Size(3) * 4 + 5).hint, 17);
  EXPECT_TRUE(Size(3) == Size(3));
  EXPECT_FALSE(Size(3) == Size(4));
}

TEST(Size, EqualSumsAreEqualInAnyOrder) {
  SizeTable table;
  const SizeScope scope(table);
  const Size a = table.symbol(5, true), b = table.symbol(7, true);
  EXPECT_TRUE(a * b + a * 2 == a * (b + 2));
  EXPECT_EQ((a * b + a * 2).hint, 45);
  EXPECT_FALSE(a * b == a * a);
  EXPECT_TRUE(a + b + Size(-1) * b == a);
  EXPECT_TRUE(folded(a + Size(-1) * a).fixed());
  EXPECT_EQ(textOf(a * b * 3 + 1), "1+3*s0*s1");
}

// Symbols that were equal by chance are two sizes.
TEST(Size, HintsProveNothing) {
  SizeTable table;
  const SizeScope scope(table);
  const Size a = table.symbol(5, true), b = table.symbol(5, true);
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(table.checks().empty());
}

TEST(Size, WhatIsRequiredIsCheckedOnceAndKnownFromThen) {
  SizeTable table;
  const SizeScope scope(table);
  const Size a = table.symbol(5, true), b = table.symbol(5, true), c = table.symbol(10, true);
  EXPECT_TRUE(table.require(a, b, kZero));
  EXPECT_TRUE(a == b);
  EXPECT_TRUE(table.require(b, a, kZero));
  EXPECT_EQ(table.checks().size(), 1u);
  EXPECT_TRUE(table.require(c, a + b, kZero));
  EXPECT_TRUE(c == a * 2);
  // In terms of what is known first.
  EXPECT_EQ(textOf(b * c), "2*s0*s0");
  EXPECT_FALSE(table.require(a, 6, kZero));
  EXPECT_EQ(table.checks().size(), 2u);
}

TEST(Size, TheLatestSymbolIsReplacedWhateverItsSign) {
  for (const bool swapped : {false, true}) {
    SizeTable table;
    const SizeScope scope(table);
    const Size a = table.symbol(4, true), b = table.symbol(9, true);
    const Size left = a * 2 + 1;
    EXPECT_TRUE(swapped ? table.require(b, left, kZero) : table.require(left, b, kZero));
    EXPECT_EQ(textOf(b), "1+2*s0");
    EXPECT_EQ(folded(b).hint, 9);
  }
}

// Symbols of sizes are at least 2, which decides much without a check.
TEST(Size, BoundsDecide) {
  SizeTable table;
  const SizeScope scope(table);
  const Size size = table.symbol(5, true), stride = table.symbol(5, false);
  EXPECT_TRUE(table.require(size * 768, 1, kMore));
  EXPECT_TRUE(table.require(1, size, kLess | kZero));
  EXPECT_TRUE(table.checks().empty());
  EXPECT_TRUE(table.require(stride, 1, kMore));
  EXPECT_TRUE(table.require(size, 100, kLess));
  EXPECT_EQ(table.checks().size(), 2u);
}

}  // namespace
}  // namespace kintsugi::passes
