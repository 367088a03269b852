#include "ir/verifier.h"

#include <gtest/gtest.h>

#include "ir/parser.h"

// What text can't express: ranges that lie outside their tables, and lists that hold themselves. The rest are
// file tests.
namespace kintsugi::ir {
namespace {

Trace base() {
  return *parseTrace(
      "trace @f:1 f {\n const #0\n %0 = call #0, 1 kw=[\"k\"] : object snap !0\n ret [%0] snap !0\n"
      " snap !0 { parent=none code=#0 func=#0 pc=1 locals=[1] stack=[2] }\n}\n");
}

template <typename Change>
std::string problemsAfter(const Change& change) {
  Trace trace = base();
  change(trace);
  return formatProblems(verify(trace, VerifierMode::kOptimized));
}

TEST(Verifier, AcceptsTheBase) {
  EXPECT_EQ(problemsAfter([](Trace&) {}), "");
}

TEST(Verifier, FindsRangesOutsideTheirTables) {
  EXPECT_NE(problemsAfter([](Trace& t) { t.code[0].firstOperand = 100; }).find("operands lie outside"),
            std::string::npos);
  EXPECT_NE(problemsAfter([](Trace& t) { t.code[0].firstOperand = kNone; }).find("operands lie outside"),
            std::string::npos);
  EXPECT_NE(problemsAfter([](Trace& t) { t.code[0].resultCount = 2; }).find("results lie outside"),
            std::string::npos);
  EXPECT_NE(problemsAfter([](Trace& t) { t.code[0].kwNames = 100; }).find("keyword names lie outside"),
            std::string::npos);
  EXPECT_NE(problemsAfter([](Trace& t) { t.states[0].stackCount = 9; }).find("slots lie outside"),
            std::string::npos);
  EXPECT_NE(problemsAfter([](Trace& t) { t.strings.clear(); }).find("there is no string"), std::string::npos);
  EXPECT_NE(problemsAfter([](Trace& t) { t.constTexts.resize(9); }).find("more descriptions"),
            std::string::npos);
}

TEST(Verifier, FindsListsThatHoldThemselves) {
  const std::string problems =
      problemsAfter([](Trace& t) { t.lists[1] = Operand::make(OperandKind::kList, 1, 1); });
  EXPECT_NE(problems.find("a list is made before its element"), std::string::npos) << problems;
}

TEST(Verifier, FindsAnOperatorWithoutName) {
  const std::string problems = problemsAfter([](Trace& t) {
    t.code[0].op = Op::kAten;
    t.code[0].kwCount = 0;
  });
  EXPECT_NE(problems.find("the operator has no name"), std::string::npos) << problems;
}

TEST(Verifier, StopsAfterManyProblems) {
  const std::string problems = problemsAfter([](Trace& t) { t.states.clear(); });
  EXPECT_FALSE(problems.empty());
  Trace trace = base();
  for (int i = 0; i < 1000; ++i) {
    trace.append(Op::kAten, {}, {}, 7);
  }
  EXPECT_LE(verify(trace, VerifierMode::kRecorded).size(), 20u);
}

}  // namespace
}  // namespace kintsugi::ir
