#include "support/check.h"

#include <gtest/gtest.h>

#include <string>

namespace kintsugi {
namespace {

void dumpText(const void* object, std::string& out) { out += *static_cast<const std::string*>(object); }

TEST(CheckContext, DumpsInnermostFirstAndEndsWithItsScope) {
  const std::string outerText = "outer";
  const std::string innerText = "inner\n";
  const CheckContext outer(&outerText, dumpText);
  {
    const CheckContext inner(&innerText, dumpText);
    EXPECT_EQ(CheckContext::dumpAll(), "inner\nouter\n");
  }
  EXPECT_EQ(CheckContext::dumpAll(), "outer\n");
}

TEST(Check, EvaluatesItsConditionOnceAndTheMessageOnlyOnFailure) {
  int conditions = 0;
  int messages = 0;
  KINTSUGI_CHECK(++conditions > 0, ++messages);
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(messages, 0);
}

#ifdef KINTSUGI_DEBUG

TEST(CheckDeathTest, AbortsWithTheContext) {
  const std::string text = "the trace";
  const CheckContext context(&text, dumpText);
  EXPECT_DEATH(KINTSUGI_CHECK(1 == 2, "value ", 7), "check failed: 1 == 2: value 7\nthe trace");
}

#else

TEST(Check, ThrowsWithPlaceConditionMessageAndContext) {
  const std::string text = "the trace";
  const CheckContext context(&text, dumpText);
  try {
    KINTSUGI_CHECK(1 == 2, "value ", 7);
    FAIL() << "the check passed";
  } catch (const InternalError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("tests/unit/support/check_test.cc:", 0), 0u) << what;
    EXPECT_NE(what.find("check failed: 1 == 2: value 7\nthe trace\n"), std::string::npos) << what;
  }
}

TEST(Check, ADumpThatFailsDoesNotHideTheCheck) {
  const CheckContext context(nullptr,
                             [](const void*, std::string&) { KINTSUGI_CHECK(false, "in the dump"); });
  try {
    KINTSUGI_UNREACHABLE("first");
  } catch (const InternalError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("unreachable: first"), std::string::npos) << what;
    EXPECT_NE(what.find("the dump itself failed"), std::string::npos) << what;
  }
}

#endif

}  // namespace
}  // namespace kintsugi
