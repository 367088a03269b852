#include "passes/pass_manager.h"

#include <gtest/gtest.h>

#include <set>

#include "fuzz/document_generator.h"
#include "guard/verifier.h"
#include "passes/guard_dedup.h"
#include "passes/pass_statistics.h"
#include "passes/renumber.h"

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

TEST(PassManager, DumpsAndTimesEachPass) {
  clearPassStatistics();
  guard::Document document = fuzz::DocumentGenerator(3).valid();
  std::vector<std::string> log;
  PassManager manager;
  manager.addAll().setDump([&](const Pass& pass, PassManager::When when, const guard::Document&) {
    log.push_back((when == PassManager::When::kBefore ? "before " : "after ") + std::string(pass.name));
  });
  manager.run(document);
  manager.run(document);
  EXPECT_EQ(log.size(), 4 * allPasses().size());
  EXPECT_EQ(log[0], "before guard-dedup");
  EXPECT_EQ(log[1], "after guard-dedup");
  const std::vector<PassTotals> totals = passStatistics();
  ASSERT_EQ(totals.size(), allPasses().size());
  EXPECT_EQ(totals[0].name, "guard-dedup");
  EXPECT_EQ(totals[0].runs, 2u);
  EXPECT_GE(totals[2].before, totals[2].after);
}

void breakTrace(guard::Document& document) { document.trace.code.pop_back(); }

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
    PassManager().addAll().setVerify(true).run(document);
    const auto problems = guard::verify(document, ir::VerifierMode::kLowered);
    ASSERT_TRUE(problems.empty()) << seed << "\n" << ir::formatProblems(problems) << guard::print(document);
  }
}

TEST(Renumber, IdentityChangesNothing) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    guard::Document document = fuzz::DocumentGenerator(seed).valid();
    const std::string before = guard::print(document);
    renumber(document, Renumbering::identity(document));
    ASSERT_EQ(before, guard::print(document));
  }
}

// A stronger guard of a different kind must never be the one that goes.
TEST(GuardDedup, ImplicationHasADirection) {
  using guard::GuardKind;
  guard::Guard a{GuardKind::kEquals, 0, 1, ir::kNone, 2, 0};
  guard::Guard b{GuardKind::kType, 0, 1, ir::kNone, 3, 0};
  EXPECT_TRUE(implies(a, b));
  EXPECT_FALSE(implies(b, a));
  b.block = 1;
  EXPECT_FALSE(implies(a, b));
  b.block = 0;
  b.source = 2;
  EXPECT_FALSE(implies(a, b));
}

}  // namespace
}  // namespace kintsugi::passes
