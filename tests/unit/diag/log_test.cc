#include "diag/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace kintsugi::diag::log {
namespace {

std::vector<std::string>& seen() {
  static std::vector<std::string> texts;
  return texts;
}

class Log : public ::testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }

  static void reset() {
    disableAll();
    setSink(nullptr);
    clear();
    seen().clear();
  }
};

TEST_F(Log, AChannelThatIsOffSaysNothing) {
  setEnabled(Channel::kGuards, true);
  emit(Channel::kTrace, "dropped");
  EXPECT_TRUE(recent().empty());
  EXPECT_TRUE(enabled(Channel::kGuards));
  setEnabled(Channel::kGuards, false);
  EXPECT_FALSE(enabled(Channel::kGuards));
}

TEST_F(Log, EventsGoToTheSinkInOrder) {
  setEnabled(Channel::kTrace, true);
  setSink([](const Event& event) { seen().push_back(event.text); });
  emit(Channel::kTrace, "one");
  emit(Channel::kTrace, Diagnostic(Code::KTG0104, {"9 instructions"}));
  EXPECT_EQ(seen(),
            (std::vector<std::string>{"one", "KTG0104 trace-too-long: the trace grew past 9 instructions"}));
  EXPECT_EQ(recent().back().diagnostic->code, Code::KTG0104);
}

TEST_F(Log, TheRingKeepsTheLastEvents) {
  setEnabled(Channel::kPerf, true);
  for (std::size_t i = 0; i < kRingSize + 3; ++i) {
    emit(Channel::kPerf, std::to_string(i));
  }
  const std::vector<Event> events = recent();
  EXPECT_EQ(events.size(), kRingSize);
  EXPECT_EQ(events.front().text, "3");
  EXPECT_EQ(events.back().sequence, events.front().sequence + kRingSize - 1);
}

TEST_F(Log, ManyThreadsMayEmit) {
  setEnabled(Channel::kPerf, true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        emit(Channel::kPerf, "x");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(recent().size(), 200u);
}

TEST(LogChannels, NamesRoundTrip) {
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    const auto channel = static_cast<Channel>(i);
    EXPECT_EQ(findChannel(channelName(channel)), channel);
  }
  EXPECT_EQ(findChannel("nonsense"), std::nullopt);
}

}  // namespace
}  // namespace kintsugi::diag::log
