#include "passes/pass_manager.h"

#include <gtest/gtest.h>

#include <set>

#include "fuzz/document_generator.h"
#include "passes/pass_statistics.h"

namespace kintsugi::passes {
namespace {

TEST(PassManager, FindsPassesByName) {
  std::set<std::string_view> names;
  for (const Pass& pass : allPasses()) {
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_EQ(findPass(pass.name), &pass);
  }
  EXPECT_EQ(findPass("no-such-pass"), nullptr);
}

TEST(PassManager, TimesEachPass) {
  clearPassStatistics();
  guard::Document document = fuzz::DocumentGenerator(3).valid();
  size_t runs = 0;
  PassManager manager;
  manager.add({"first", [&runs](PassUnit&) { ++runs; }});
  manager.add({"second", [](PassUnit& unit) { unit.document.trace.file = "other.py"; }});
  manager.run(document);
  manager.run(document);
  EXPECT_EQ(runs, 2u);
  const std::vector<PassTotals> totals = passStatistics();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].kind, "trace");
  EXPECT_EQ(totals[0].name, "first");
  EXPECT_EQ(totals[1].name, "second");
  EXPECT_EQ(totals[1].runs, 2u);
  EXPECT_EQ(totals[1].before, 2 * document.trace.code.size());
  EXPECT_EQ(totals[1].after, totals[1].before);
}

void breakTrace(PassUnit& unit) { unit.document.trace.code.pop_back(); }

TEST(PassManagerDeathTest, ReportsThePassThatBreaksADocument) {
  static const Pass kBroken = {"broken", breakTrace};
  guard::Document document = fuzz::DocumentGenerator(3).valid();
  PassManager manager;
  manager.add(kBroken).setVerify(true);
#ifdef KINTSUGI_DEBUG
  EXPECT_DEATH(manager.run(document), "not valid after pass broken");
#else
  EXPECT_THROW(manager.run(document), InternalError);
#endif
}

TEST(Passes, LeaveRandomDocumentsValid) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    guard::Document document = fuzz::DocumentGenerator(seed).valid();
    PassManager manager;
    for (const Pass& pass : allPasses()) manager.add(pass);
    manager.setVerify(true).setInput(ir::VerifierMode::kRecorded).run(document);
  }
}

}  // namespace
}  // namespace kintsugi::passes
