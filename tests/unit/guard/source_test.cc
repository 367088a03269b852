#include "guard/source.h"

#include <gtest/gtest.h>

#include "guard/kinds.h"
#include "guard/source_roots.h"

// The text of each kind of path is in filetests/guard/source_paths.ktir.
namespace kintsugi::guard {
namespace {

SourceNode node(SourceKind kind, SourceId parent, int64_t index = 0, BlockId block = 0) {
  SourceNode out;
  out.kind = kind;
  out.parent = parent;
  out.index = index;
  out.block = block;
  return out;
}

TEST(SourcePath, SurvivesBrokenTables) {
  SourceTable table;
  EXPECT_EQ(table.path(0, {}), "?");
  table.nodes = {node(SourceKind::kDict, 0), node(SourceKind::kType, 2), node(SourceKind::kType, 1),
                 node(SourceKind::kArg, ir::kNone, -4), node(SourceKind::kDictItem, 3)};
  EXPECT_EQ(table.path(0, {}), "?.__dict__");
  EXPECT_EQ(table.path(2, {}), "type(type(?))");
  EXPECT_EQ(table.path(3, {}), "arg-4");
  EXPECT_EQ(table.path(4, {}), "arg-4[?]");
}

TEST(SourcePath, NamesArguments) {
  SourceTable table;
  table.nodes = {node(SourceKind::kArg, ir::kNone, 0), node(SourceKind::kListItem, 0, 2)};
  EXPECT_EQ(table.path(1, {}), "arg0[2]");
  table.argNames = {"x"};
  EXPECT_EQ(table.path(1, {}), "x[2]");
}

TEST(SourceRoots, FollowThePathToTheStep) {
  SourceTable table;
  table.nodes = {node(SourceKind::kArg, ir::kNone), node(SourceKind::kValue, ir::kNone, 7, 1),
                 node(SourceKind::kDict, 1, 0, 2), node(SourceKind::kDict, 0, 0, 2)};
  const ir::SourceRoots roots = sourceRoots(table);
  EXPECT_EQ(roots.value, (std::vector<ir::ValueId>{ir::kNone, 7, 7, ir::kNone}));
  EXPECT_EQ(roots.block, (std::vector<uint32_t>{0, 1, 2, 2}));
}

TEST(Kinds, TextsAreUnique) {
  for (size_t i = 0; i <= static_cast<size_t>(SourceKind::kPartial); ++i) {
    EXPECT_EQ(findSourceKind(kindInfo(static_cast<SourceKind>(i)).text), static_cast<SourceKind>(i));
  }
  for (size_t i = 0; i <= static_cast<size_t>(GuardKind::kGlobalState); ++i) {
    EXPECT_EQ(findGuardKind(kindInfo(static_cast<GuardKind>(i)).text), static_cast<GuardKind>(i));
  }
}

TEST(Kinds, EqualComparesOnlyTheParts) {
  Guard a{GuardKind::kType, 0, 1, ir::kNone, 2, 0};
  Guard b = a;
  b.number = 9;
  EXPECT_TRUE(equal(a, b));
  b.key = 3;
  EXPECT_FALSE(equal(a, b));
}

}  // namespace
}  // namespace kintsugi::guard
