#include "capture/transforms.h"

#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using test::inFrame;
using test::run;
using test::value;

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeGuards guards;
  Overlays overlays;
  test::FakeContainers reads{overlays};
  FrameStack frames;
  Transforms transforms{frames};
  TransientStores stores{{breaks, guards, reads}, transforms};
  ShadowFrame outer, inner;
  pyapi::Ref<> dict = value("{'count': 1, 'tensor': None}");
  pyapi::Ref<> key = value("'count'");

  Fixture() {
    inner.caller = &outer;
    frames.setCurrent(&inner);
  }
  void set(const char* name, const char* expression) {
    PyDict_SetItemString(dict.get(), name, value(expression).get());
  }
  bool store(const char* now) {
    const pyapi::Ref<> object = value(now);
    const bool done = stores.store(dict.get(), key.get(), Shadow::constant(), object.get());
    PyDict_SetItem(dict.get(), key.get(), object.get());
    return done;
  }
};

TEST(Transforms, AreEnteredByTorchsCodeAlone) {
  Fixture f;
  inFrame("(lambda: grab())()", [&](ShadowFrame& frame) {
    f.frames.setCurrent(&frame);
    EXPECT_FALSE(f.transforms.enter(true));
    EXPECT_FALSE(frame.transform);
    EXPECT_TRUE(frame.rebuildable);
  });
  f.frames.setCurrent(nullptr);
  EXPECT_FALSE(f.transforms.enter(true));
  EXPECT_FALSE(f.transforms.active());
  EXPECT_FALSE(f.transforms.countsTransforms());
  f.transforms.leave();  // of one that was not entered
  EXPECT_TRUE(f.transforms.gradModeBelow(true));
  EXPECT_FALSE(f.transforms.gradModeBelow(false));
}

TEST(Transforms, HoldForCalleesOfTheFrameThatEnteredThem) {
  Fixture f;
  EXPECT_FALSE(f.transforms.isInside());
  f.outer.transform = true;
  EXPECT_TRUE(f.transforms.isInside());
  f.frames.setCurrent(nullptr);
  EXPECT_FALSE(f.transforms.isInside());
}

TEST(TransientStores, AreNoneWithoutATransform) {
  Fixture f;
  EXPECT_FALSE(f.stores.storeTransient(f.dict.get(), f.key.get(), Shadow::constant(), f.dict.get()));
  EXPECT_TRUE(f.overlays.empty());
}

TEST(TransientStores, PinWhatWasThereAndAreReadBack) {
  Fixture f;
  f.outer.transform = true;
  EXPECT_TRUE(f.store("2"));
  EXPECT_EQ(f.reads.read, (std::vector<PyObject*>{f.key.get()}));
  EXPECT_EQ(f.guards.pinned.size(), 1U);  // the count from before
  ASSERT_NE(f.overlays.find(f.dict.get()), nullptr);
  EXPECT_TRUE(f.store("3"));
  EXPECT_EQ(f.guards.pinned.size(), 1U);  // once
  // From then on what goes to that place is left out, whatever it is.
  const pyapi::Ref<> one = value("1");
  EXPECT_EQ(f.stores.storeTransient(f.dict.get(), f.key.get(), Shadow::constant(), one.get()), true);
  f.frames.setCurrent(nullptr);
  EXPECT_EQ(f.stores.storeTransient(f.dict.get(), f.key.get(), Shadow::constant(), one.get()), std::nullopt);
  EXPECT_TRUE(f.breaks.live);
}

TEST(TransientStores, EndWithEverythingAsItWas) {
  Fixture f;
  f.outer.transform = true;
  f.store("2");
  f.stores.frameExited(f.inner);  // has entered none itself
  f.set("count", "1");
  f.frames.setCurrent(nullptr);
  f.stores.frameExited(f.outer);
  EXPECT_TRUE(f.breaks.live);
  f.set("count", "5");
  f.stores.frameExited(f.outer);  // nobody asks any more
  EXPECT_TRUE(f.breaks.live);
}

TEST(TransientStores, EndTheRecordingIfSomethingIsLeftBehind) {
  for (const char* left : {"2", "True", "1.5", "[]"}) {
    Fixture f;
    f.outer.transform = true;
    f.store(left);
    f.frames.setCurrent(nullptr);
    f.stores.frameExited(f.outer);
    EXPECT_FALSE(f.breaks.live) << left;
  }
}

TEST(TransientStores, RefuseNamesThatATransformAdds) {
  Fixture f;
  f.outer.transform = true;
  f.key = value("'new'");
  EXPECT_FALSE(f.store("2"));
  EXPECT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0109}));
  Fixture other;
  other.key = value("3");
  PyDict_SetItem(other.dict.get(), other.key.get(), Py_None);
  EXPECT_FALSE(other.store("2"));
}

TEST(TransientStores, EndWhereThePlaceCanNotBePinned) {
  Fixture f;
  f.outer.transform = true;
  f.guards.canPin = false;
  EXPECT_FALSE(f.store("2"));
}

}  // namespace
}  // namespace kintsugi::capture
