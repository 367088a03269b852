#include "support/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kintsugi {
namespace {

struct Why {
  int code;
};

using IntResult = Result<int, Why>;

IntResult half(int n) {
  if (n % 2 != 0) {
    return Why{n};
  }
  return n / 2;
}

IntResult quarter(int n) {
  KINTSUGI_ASSIGN_OR_RETURN(const int once, half(n));
  KINTSUGI_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Result<void, Why> mustBeEven(int n) {
  KINTSUGI_TRY(half(n));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(half(4).value(), 2);
  EXPECT_FALSE(half(3));
  EXPECT_EQ(half(3).error().code, 3);
  EXPECT_EQ(half(3).valueOr(7), 7);
}

TEST(Result, AssignOrReturnPassesTheFirstError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().code, 3);
  EXPECT_EQ(quarter(5).error().code, 5);
}

TEST(Result, VoidSuccessCarriesNothing) {
  EXPECT_TRUE(mustBeEven(2).ok());
  EXPECT_EQ(mustBeEven(1).error().code, 1);
}

TEST(Result, MovesOnlyTypesThrough) {
  Result<std::unique_ptr<int>, Why> result = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

#ifdef KINTSUGI_DEBUG
TEST(ResultDeathTest, TheWrongAccessorAborts) { EXPECT_DEATH((void)half(3).value(), "holds an error"); }
#else
TEST(Result, TheWrongAccessorIsABugOfOurs) {
  EXPECT_THROW((void)half(3).value(), InternalError);
  EXPECT_THROW((void)half(4).error(), InternalError);
}
#endif

}  // namespace
}  // namespace kintsugi
