#include "capture/dead_objects.h"
#include "capture/tables/overlays.h"
#include "capture/tables/virtual_table.h"
#include "capture/tables/watched_generators.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture {
namespace {

using test::run;
using test::value;

TEST(EncodedShadow, IsDecodedAgain) {
  for (const Shadow shadow :
       {Shadow::null(), Shadow::constant(), Shadow::source(7), Shadow::value(1u << 31), Shadow::virt(12)}) {
    const pyapi::Ref<> encoded = pyapi::steal(encodeShadow(shadow));
    EXPECT_EQ(decodeShadow(encoded.get()), shadow);
  }
}

TEST(VirtualTable, FindsObjectsByIdentity) {
  VirtualTable virtuals;
  const pyapi::Ref<> a = value("[1]"), b = value("[1]");
  const Shadow shadow = virtuals.add(VirtualKind::kList, a.get());
  EXPECT_EQ(virtuals.find(a.get()), shadow.virtualId());
  EXPECT_EQ(virtuals.findObject(a.get()), &virtuals[shadow]);
  EXPECT_FALSE(virtuals.find(b.get()).has_value());
  virtuals.replaceObject(shadow, b.get());
  EXPECT_EQ(virtuals.findObject(b.get()), &virtuals[shadow]);
  EXPECT_EQ(virtuals.findObject(a.get()), nullptr);
  virtuals.forgetIdentity(virtuals[shadow]);
  EXPECT_FALSE(virtuals.contains(b.get()));
  EXPECT_EQ(virtuals[shadow].object.get(), b.get());  // it goes on under its number
}

TEST(VirtualTable, CountsTheChangesThatRecipesName) {
  VirtualTable virtuals;
  Virtual& v = virtuals[virtuals.add(VirtualKind::kDict, value("{}").get())];
  const uint64_t before = virtuals.epoch();
  EXPECT_TRUE(virtuals.setEntry(v, Py_None, Shadow::value(3)));
  EXPECT_EQ(virtuals.epoch(), before);  // no recipe names it
  v.recipe = 0;
  EXPECT_TRUE(virtuals.setEntry(v, Py_None, Shadow::value(4)));
  EXPECT_EQ(virtuals.epoch(), before + 1);
  EXPECT_EQ(virtuals.entryOf(v, Py_None), Shadow::value(4));
  EXPECT_FALSE(virtuals.entryOf(v, Py_True).has_value());
  EXPECT_FALSE(virtuals.setEntry(v, value("[]").get(), Shadow::constant()));  // it has no hash
  PyErr_Clear();
}

TEST(VirtualTable, WalksAlongThoseThatAreHeld) {
  VirtualTable virtuals;
  Pauses pauses;
  DeadObjects dead(virtuals, pauses);
  Refs kept;
  for (int i = 0; i < 1000; ++i) {
    pyapi::Ref<> made = value("[1]");
    dead.add(virtuals.add(VirtualKind::kList, made.get()).virtualId());
    if (i % 100 == 0) kept.push_back(std::move(made));
    made = {};
    dead.sweep();
    EXPECT_LE(virtuals.held().size(), 2 * kept.size() + 64) << i;
  }
  const std::vector<Virtual*>& held = virtuals.held();
  for (const pyapi::Ref<>& object : kept)
    EXPECT_NE(std::ranges::find(held, virtuals.findObject(object.get())), held.end());
  EXPECT_EQ(virtuals.size(), 1000u);
}

TEST(VirtualTable, ReleasesTheNewestFirst) {
  run("order = []\nclass Noisy:\n  def __init__(self, n): self.n = n\n  def __del__(self): "
      "order.append(self.n)");
  VirtualTable virtuals;
  virtuals.add(VirtualKind::kInstance, value("Noisy(1)").get());
  virtuals.add(VirtualKind::kInstance, value("Noisy(2)").get());
  virtuals.releaseObjects();
  EXPECT_TRUE(test::holds("order == [2, 1]"));
}

TEST(Overlays, RememberWhichKeysAreNew) {
  Overlays overlays;
  const pyapi::Ref<> dict = value("{'old': 1}"), old = value("'old'"), fresh = value("'fresh'");
  const auto [overlay, isNew] = overlays.make(dict.get());
  EXPECT_TRUE(isNew);
  EXPECT_FALSE(overlays.make(dict.get()).isNew);
  overlay.written(dict.get(), old.get(), Shadow::value(1), Py_True);
  EXPECT_FALSE(overlay.lengthUnknown());
  EXPECT_TRUE(overlay.entries.contains(old.get()));
  overlay.written(dict.get(), fresh.get(), Shadow::value(1), Py_True);
  EXPECT_TRUE(overlay.lengthUnknown());
  EXPECT_EQ(overlays.find(dict.get()), &overlay);
}

TEST(Overlays, KnowWhatWasWrittenAndWhatWasDeleted) {
  Overlays overlays;
  const pyapi::Ref<> dict = value("{}"), key = value("'key'"), noisy = value("object()");
  Overlay& overlay = overlays.make(dict.get()).overlay;
  EXPECT_FALSE(overlay.entries.find(key.get()));
  overlay.written(dict.get(), key.get(), Shadow::value(7), noisy.get());
  const auto entry = overlay.entries.find(key.get());
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->shadow.valueId(), 7U);
  EXPECT_EQ(entry->object, noisy.get());
  EXPECT_EQ(Py_REFCNT(noisy.get()), 1);  // it has to die where the program lets it
  overlay.noteDeleted(key.get());
  EXPECT_FALSE(overlay.entries.contains(key.get()));
  EXPECT_TRUE(overlay.isDeleted(key.get()));
  overlay.entries.note(Py_None, Shadow::null(), nullptr);
  EXPECT_EQ(overlay.entries.find(Py_None)->object, nullptr);
}

TEST(Overlays, HandOutTheirReference) {
  Overlays overlays;
  const pyapi::Ref<> list = value("[]");
  overlays.make(list.get());
  EXPECT_EQ(Py_REFCNT(list.get()), 2);
  EXPECT_EQ(overlays.take(list.get()).get(), list.get());
  EXPECT_EQ(Py_REFCNT(list.get()), 1);
  EXPECT_FALSE(overlays.take(list.get()));
  EXPECT_EQ(overlays.find(list.get()), nullptr);
}

TEST(DeadObjects, FreeWhatOnlyTheRecorderHolds) {
  VirtualTable virtuals;
  Pauses pauses;
  DeadObjects dead(virtuals, pauses);
  const pyapi::Ref<> held = value("[1]");
  const Shadow kept = virtuals.add(VirtualKind::kList, held.get());
  const Shadow gone = virtuals.add(VirtualKind::kList, value("[2]").get());
  dead.add(kept.virtualId());
  dead.add(gone.virtualId());
  dead.sweep();
  EXPECT_EQ(virtuals[kept].object.get(), held.get());
  EXPECT_FALSE(virtuals[gone].object);
  EXPECT_EQ(virtuals[gone].kind, VirtualKind::kOpaque);
  EXPECT_FALSE(pauses.isPaused());
}

TEST(DeadObjects, LeaveInstancesWithAFinalizer) {
  run("class Plain: pass\nclass Noisy:\n  def __del__(self): pass");
  VirtualTable virtuals;
  Pauses pauses;
  DeadObjects dead(virtuals, pauses);
  const Shadow plain = virtuals.add(VirtualKind::kInstance, value("Plain()").get());
  const Shadow noisy = virtuals.add(VirtualKind::kInstance, value("Noisy()").get());
  dead.add(plain.virtualId());
  dead.add(noisy.virtualId());
  dead.sweep();
  EXPECT_FALSE(virtuals[plain].object);
  EXPECT_TRUE(virtuals[noisy].object);  // its finalizer would run
  dead.sweepAll();
  EXPECT_TRUE(virtuals[noisy].object);
}

TEST(WatchedGenerators, AreTakenOnceTheProgramHasDroppedThem) {
  run("def steps():\n  try:\n    yield 1\n  finally:\n    pass");
  VirtualTable virtuals;
  WatchedGenerators watched(virtuals);
  pyapi::Ref<> held = value("steps()");
  const Shadow shadow = virtuals.add(VirtualKind::kGenerator, held.get());
  virtuals[shadow].frame = std::make_unique<ShadowFrame>();
  watched.add(shadow.virtualId());
  watched.add(shadow.virtualId());
  EXPECT_EQ(watched.ids().size(), 1U);
  EXPECT_TRUE(watched.holdsAny({Shadow::constant(), shadow}));
  EXPECT_FALSE(watched.takeDropped().has_value());
  held.reset();
  EXPECT_EQ(watched.takeDropped(), shadow.virtualId());
  EXPECT_TRUE(watched.empty());
}

TEST(WatchedGenerators, ForgetThoseThatRun) {
  VirtualTable virtuals;
  WatchedGenerators watched(virtuals);
  const Shadow shadow = virtuals.add(VirtualKind::kGenerator, value("steps()").get());
  watched.add(shadow.virtualId());
  EXPECT_FALSE(watched.takeDropped().has_value());
  EXPECT_TRUE(watched.empty());
  {
    const WatchedGenerators::Closing outer(watched);
    { const WatchedGenerators::Closing inner(watched); }
    EXPECT_TRUE(watched.isClosing());
  }
  EXPECT_FALSE(watched.isClosing());
}

}  // namespace
}  // namespace kintsugi::capture
