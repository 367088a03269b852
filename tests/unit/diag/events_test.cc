#include "diag/events.h"

#include <gtest/gtest.h>

#include <thread>

namespace kintsugi::diag::events {
namespace {

class Events : public ::testing::Test {
 protected:
  void SetUp() override { drain(); }
  void TearDown() override {
    stop();
    drain();
  }
};

TEST_F(Events, OffIsTheDefault) {
  EXPECT_FALSE(on());
  start();
  EXPECT_TRUE(on());
  stop();
  EXPECT_FALSE(on());
}

TEST_F(Events, EachIsThereOnceInTheOrderOfTime) {
  emit({.startNs = 30, .kind = Kind::kExit});
  emit({.startNs = 10, .durationNs = 40, .extra = 7, .kind = Kind::kCall});
  const Drained drained = drain();
  ASSERT_EQ(drained.events.size(), 2u);
  EXPECT_EQ(drained.events[0].kind, Kind::kCall);
  EXPECT_EQ(drained.events[0].extra, 7u);
  EXPECT_EQ(drained.events[1].kind, Kind::kExit);
  EXPECT_TRUE(drain().events.empty());
}

TEST_F(Events, TextsAreInternedOnce) {
  const TextId id = intern("print");
  EXPECT_EQ(intern(std::string("pri") + "nt"), id);
  EXPECT_NE(intern("open"), id);
  EXPECT_EQ(textOf(id), "print");
  EXPECT_EQ(intern(""), 0u);
  EXPECT_EQ(textOf(0), "");
  EXPECT_EQ(textOf(0xffffffffu), "");
}

TEST_F(Events, AFullRingDropsNewEventsAndCountsThem) {
  std::thread([] {
    start(16);
    for (std::uint64_t i = 0; i < 20; ++i) emit({.startNs = i});
  }).join();
  start(kDefaultCapacity);
  const Drained drained = drain();
  EXPECT_EQ(drained.events.size(), 16u);
  EXPECT_EQ(drained.events.back().startNs, 15u);
  EXPECT_EQ(drained.dropped, 4u);
  EXPECT_EQ(drain().dropped, 0u);
}

TEST_F(Events, ThreadsWriteWhileOneReads) {
  constexpr int kThreads = 4, kEach = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      const TextId name = intern("shared");
      for (int i = 0; i < kEach; ++i) emit({.startNs = nowNs(), .name = name, .kind = Kind::kStep});
    });
  }
  std::size_t seen = 0;
  std::uint64_t dropped = 0;
  auto take = [&] {
    const Drained drained = drain();
    seen += drained.events.size();
    dropped += drained.dropped;
    for (const Event& event : drained.events) EXPECT_EQ(textOf(event.name), "shared");
  };
  for (int i = 0; i < 100; ++i) take();
  for (std::thread& thread : threads) thread.join();
  take();
  EXPECT_EQ(seen + dropped, static_cast<std::size_t>(kThreads * kEach));
}

TEST_F(Events, StacksAreTextsOfFrames) {
  EXPECT_EQ(stackText({{"a.py", 1, "f"}, {"b.py", 22, "g"}}),
            "a.py\x1f"
            "1\x1f"
            "f\nb.py\x1f"
            "22\x1fg");
  EXPECT_EQ(stackText({}), "");
}

TEST(EventKinds, AllHaveNames) {
  for (std::size_t i = 0; i < kindCount(); ++i) EXPECT_FALSE(kindName(static_cast<Kind>(i)).empty());
}

}  // namespace
}  // namespace kintsugi::diag::events
