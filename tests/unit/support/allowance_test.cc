#include "support/allowance.h"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi {
namespace {

// Of `occasions` in a row, which ones are taken, if `paid` calls go well before each.
std::vector<int> taken(Allowance& allowance, int occasions, uint64_t paid) {
  std::vector<int> out;
  for (int k = 0; k < occasions; ++k) {
    if (allowance.allows(paid)) {
      allowance.spend();
      out.push_back(k);
    }
  }
  return out;
}

TEST(Allowance, WhatNeverPaysBecomesRare) {
  Allowance allowance(8, 3);
  EXPECT_EQ(taken(allowance, 40, 0), (std::vector<int>{0, 1, 2, 4, 8, 16, 32}));
}

TEST(Allowance, WhatPaysIsDoneAtOnce) {
  Allowance allowance(4, 2);
  EXPECT_EQ(taken(allowance, 6, 4).size(), 6u);
}

TEST(Allowance, IsThereAgainOnceTheDebtIsPaid) {
  Allowance allowance(4, 2);
  taken(allowance, 100, 0);
  EXPECT_FALSE(allowance.allows(0));
  EXPECT_TRUE(allowance.allows(9));
}

}  // namespace
}  // namespace kintsugi
