#include "capture/tables/guard_writer.h"
#include "capture/tables/known_sources.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using guard::SourceKind;
using test::value;

TEST(GuardBlocks, ResolveSourcesBehindTheStepThatMayHaveChangedThem) {
  GuardBlocks blocks;
  EXPECT_EQ(blocks.ofSource(SourceKind::kDictItem, 0), 0U);
  blocks.next();
  EXPECT_EQ(blocks.ofSource(SourceKind::kDictItem, 0), 0U);  // the step changes nothing that guards read
  blocks.invalidateOlder();
  EXPECT_EQ(blocks.ofSource(SourceKind::kDictItem, 0), 1U);
  EXPECT_EQ(blocks.ofSource(SourceKind::kTupleItem, 0), 0U);  // a tuple can't change
  EXPECT_EQ(blocks.ofSource(SourceKind::kArg, 0), 0U);
  blocks.next();
  EXPECT_EQ(blocks.ofSource(SourceKind::kValue, 0), 2U);  // a step's result: in the block behind it
  EXPECT_EQ(blocks.ofSource(SourceKind::kTupleItem, 2), 2U);
}

TEST(GuardBlocks, OfASideTraceBeginAtItsOwn) {
  GuardBlocks blocks;
  blocks.beginAt(3);
  EXPECT_EQ(blocks.ofSource(SourceKind::kPinned, 0), 3U);
  EXPECT_EQ(blocks.ofGuard(GuardKind::kIs, 0), 3U);
}

TEST(GuardBlocks, AskForTheStateBehindAStepAndForTheIdentityAtOnce) {
  GuardBlocks blocks;
  blocks.next();
  blocks.invalidateOlder();
  EXPECT_EQ(blocks.ofGuard(GuardKind::kIs, 0), 0U);
  EXPECT_EQ(blocks.ofGuard(GuardKind::kLength, 0), 1U);
}

struct Fixture {
  guard::Document document;
  GuardBlocks blocks;
  KnownSources sources{document.sources.nodes};
  GuardWriter guards{document, blocks};

  ir::SourceId read(SourceKind kind, ir::SourceId parent, PyObject* key, int64_t index, PyObject* object) {
    const guard::BlockId block = blocks.ofSource(kind, parent == ir::kNone ? 0 : sources.node(parent).block);
    const auto found = sources.find({kind, parent, key, index}, block);
    if (found.isNew) sources.append(found, {kind, parent, ir::kNone, index, block}, object);
    return found.id;
  }
};

TEST(KnownSources, FindTheSamePathAgain) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}"), key = value("'name'"), item = value("object()");
  const ir::SourceId root = f.read(SourceKind::kArg, ir::kNone, nullptr, 0, dict.get());
  const ir::SourceId first = f.read(SourceKind::kDictItem, root, key.get(), 0, item.get());
  EXPECT_EQ(f.read(SourceKind::kDictItem, root, key.get(), 0, item.get()), first);
  EXPECT_NE(f.read(SourceKind::kDictItem, root, value("'other'").get(), 0, item.get()), first);
  EXPECT_EQ(f.document.sources.nodes.size(), 3U);
  EXPECT_EQ(f.sources.objectOf(first), item.get());
  EXPECT_TRUE(f.sources.shadowOf(first).isNull());
}

TEST(KnownSources, ReadAgainBehindAStepUnderTheSameHash) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}"), key = value("'name'");
  const ir::SourceId root = f.read(SourceKind::kArg, ir::kNone, nullptr, 0, dict.get());
  const ir::SourceId before = f.read(SourceKind::kDictItem, root, key.get(), 0, Py_None);
  f.blocks.next();
  f.blocks.invalidateOlder();
  const ir::SourceId after = f.read(SourceKind::kDictItem, root, key.get(), 0, Py_None);
  EXPECT_NE(after, before);
  EXPECT_EQ(f.sources.hashOf(after), f.sources.hashOf(before));  // what is learned of one holds of the other
}

TEST(KnownSources, NameAnObjectByItsFirstSource) {
  Fixture f;
  const pyapi::Ref<> object = value("object()");
  const ir::SourceId a = f.read(SourceKind::kArg, ir::kNone, nullptr, 0, object.get());
  const ir::SourceId b = f.read(SourceKind::kArg, ir::kNone, nullptr, 1, object.get());
  EXPECT_TRUE(f.sources.name(object.get(), a));
  EXPECT_FALSE(f.sources.name(object.get(), b));
  EXPECT_EQ(f.sources.of(object.get()), a);
  f.sources.forget(object.get());
  EXPECT_FALSE(f.sources.of(object.get()).has_value());
  EXPECT_EQ(f.sources.objectOf(a), nullptr);
  EXPECT_EQ(f.sources.objectOf(b), nullptr);
}

TEST(GuardWriter, WritesTheSameConditionOnce) {
  Fixture f;
  const ir::SourceId a = f.read(SourceKind::kArg, ir::kNone, nullptr, 0, Py_None);
  f.guards.write({GuardKind::kType, a, 5});
  f.guards.write({GuardKind::kType, a, 5});
  f.guards.write({GuardKind::kType, a, 6});
  f.guards.write({GuardKind::kLength, a, ir::kNone, 2});
  f.guards.write({GuardKind::kLength, a, ir::kNone, 3});
  EXPECT_EQ(f.document.guards.guards.size(), 4U);
}

TEST(GuardWriter, AsksAgainBehindAStep) {
  Fixture f;
  const ir::SourceId a = f.read(SourceKind::kArg, ir::kNone, nullptr, 0, Py_None);
  f.guards.write({GuardKind::kLength, a, ir::kNone, 2});
  f.blocks.next();
  f.blocks.invalidateOlder();
  f.guards.write({GuardKind::kLength, a, ir::kNone, 2});
  ASSERT_EQ(f.document.guards.guards.size(), 2U);
  EXPECT_EQ(f.document.guards.guards[1].block, 1U);
}

TEST(GuardWriter, ComparesTwoSourcesWhereBothAreResolved) {
  Fixture f;
  const ir::SourceId a = f.read(SourceKind::kArg, ir::kNone, nullptr, 0, Py_None);
  f.blocks.next();
  const ir::SourceId b = f.read(SourceKind::kValue, ir::kNone, nullptr, 7, Py_None);
  f.guards.write({GuardKind::kNotSame, a, ir::kNone, 0, b});
  EXPECT_EQ(f.document.guards.guards.at(0).block, 1U);
}

}  // namespace
}  // namespace kintsugi::capture
