#include "guard/document.h"

#include <gtest/gtest.h>

#include "fuzz/document_generator.h"
#include "guard/verifier.h"

namespace kintsugi::guard {
namespace {

Document parsed(std::string_view text) {
  diag::Result<Document> document = parse(text);
  EXPECT_TRUE(document.ok()) << text;
  return std::move(document).value();
}

TEST(Document, PrintsOneGuardWithThePathOfItsSource) {
  const Document document = parsed(
      "sources {\n args \"self\"\n $0 = arg 0\n $1 = dict $0\n $2 = item $1 #0\n}\nguards 0 {\n type $2 #0\n"
      " globalstate 1\n}\ntrace @f:1 f {\n const #0 \"'width'\"\n ret none\n}\n");
  EXPECT_EQ(print(document, document.guards.guards[0]), "type $2 #0  ; self.width");
  EXPECT_EQ(print(document, document.guards.guards[1]), "globalstate 1");
}

TEST(Document, LeavesOutEmptySections) {
  const std::string text = "trace @f:1 f {\n  ret none\n}\n";
  EXPECT_EQ(print(parsed(text)), text);
}

// A short run of the fuzzer of tests/fuzz, so that every test run has it.
TEST(Document, RandomOnesMakeTheRoundTrip) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Document document = fuzz::DocumentGenerator(seed).valid();
    const std::string text = print(document);
    const diag::Result<Document> again = parse(text);
    ASSERT_TRUE(again.ok()) << again.error().format() << "\n" << text;
    ASSERT_TRUE(equal(document, *again)) << text;
    const auto problems = verify(document, ir::VerifierMode::kRecorded);
    ASSERT_TRUE(problems.empty()) << ir::formatProblems(problems) << text;
  }
}

TEST(Document, EqualSeesSourcesAndGuards) {
  const std::string text =
      "sources {\n args \"self\"\n $0 = arg 0\n}\nguards 0 {\n nodict $0\n}\nguards 1 {\n}\ntrace @f:1 f {\n "
      "ret none\n}\n";
  const auto differs = [&](auto&& change) {
    Document other = parsed(text);
    change(other);
    return !equal(parsed(text), other) && print(parsed(text)) != print(other);
  };
  EXPECT_TRUE(equal(parsed(text), parsed(text)));
  EXPECT_TRUE(differs([](Document& d) { d.sources.argNames[0] = "x"; }));
  EXPECT_TRUE(differs([](Document& d) { d.sources.nodes[0].index = 1; }));
  EXPECT_TRUE(differs([](Document& d) { d.sources.nodes[0].block = 1; }));
  EXPECT_TRUE(differs([](Document& d) { d.sources.nodes.push_back(d.sources.nodes[0]); }));
  EXPECT_TRUE(differs([](Document& d) { d.guards.guards[0].block = 1; }));
  EXPECT_TRUE(differs([](Document& d) { d.guards.guards[0].kind = GuardKind::kEmptyCell; }));
  EXPECT_TRUE(differs([](Document& d) { d.guards.blockCount = 3; }));
  EXPECT_TRUE(differs([](Document& d) { d.trace.line = 7; }));
}

}  // namespace
}  // namespace kintsugi::guard
