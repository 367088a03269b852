#include "capture/tables/constant_pool.h"
#include "capture/tables/frozen_objects.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture {
namespace {

using test::value;

TEST(ConstantPool, NumbersEachObjectOnce) {
  ConstantPool constants;
  const pyapi::Ref<> a = value("object()"), b = value("object()");
  const auto first = constants.add(a.get());
  EXPECT_TRUE(first.isNew);
  EXPECT_EQ(constants.add(b.get()).id, first.id + 1);
  EXPECT_EQ(constants.add(a.get()).id, first.id);
  EXPECT_FALSE(constants.add(a.get()).isNew);
  EXPECT_EQ(constants.at(first.id), a.get());
  EXPECT_EQ(constants.find(b.get()), first.id + 1);
  EXPECT_FALSE(constants.find(Py_None).has_value());
  EXPECT_EQ(Py_REFCNT(a.get()), 2);  // ours and its own
}

TEST(ConstantPool, TellsEqualObjectsApart) {
  ConstantPool constants;
  const pyapi::Ref<> a = value("[1]"), b = value("[1]");
  EXPECT_NE(constants.add(a.get()).id, constants.add(b.get()).id);
}

TEST(ConstantPool, AdoptsAListThatNamesAnObjectTwice) {
  ConstantPool constants;
  const pyapi::Ref<> a = value("object()");
  constants.adopt(a.get());
  constants.adopt(Py_None);
  constants.adopt(a.get());
  EXPECT_EQ(constants.size(), 3U);
  EXPECT_EQ(constants.find(a.get()), ir::ConstId{0});
  EXPECT_EQ(constants.at(2), a.get());
}

TEST(ConstantPool, ReleasesAnObject) {
  ConstantPool constants;
  const pyapi::Ref<> a = value("object()");
  const ir::ConstId id = constants.add(a.get()).id;
  constants.release(a.get());
  EXPECT_EQ(constants.at(id), Py_None);
  EXPECT_EQ(Py_REFCNT(a.get()), 1);
  constants.release(Py_True);  // none of them: nothing happens
}

TEST(FrozenObjects, ThawProxiesOfDictsOnly) {
  FrozenObjects frozen;
  const pyapi::Ref<> proxy = value("vars(int)"), other = value("object()");
  EXPECT_TRUE(frozen.add(proxy.get()));
  EXPECT_FALSE(frozen.add(proxy.get()));
  EXPECT_TRUE(frozen.add(other.get()));
  frozen.thaw();
  EXPECT_FALSE(frozen.contains(proxy.get()));
  EXPECT_TRUE(frozen.wasAdded(proxy.get()));
  EXPECT_TRUE(frozen.contains(other.get()));
}

}  // namespace
}  // namespace kintsugi::capture
