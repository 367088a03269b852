#include "support/fork_gate.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace kintsugi {
namespace {

TEST(ForkGate, AForkWaitsForASafePointAndNobodyEntersMeanwhile) {
  ForkGate gate;
  std::atomic<int> step{0};
  std::thread worker([&] {
    const ForkGate::Inside inside(gate);
    step = 1;
    while (step.load() != 2) std::this_thread::yield();
    for (int k = 0; k < 1000; ++k) std::this_thread::yield();
    step = 3;
    gate.safePoint();  // the fork goes first
    step = 5;
  });
  while (step.load() != 1) std::this_thread::yield();
  step = 2;
  gate.prepare();
  EXPECT_EQ(step.load(), 3);
  step = 4;
  gate.parent();
  worker.join();
  EXPECT_EQ(step.load(), 5);
}

TEST(ForkGate, ASafePointWithoutAForkGoesOn) {
  ForkGate gate;
  const ForkGate::Inside inside(gate);
  gate.safePoint();
}

TEST(ForkGate, TheChildHasAnOpenGate) {
  static ForkGate gate;
  pthread_atfork([] { gate.prepare(); }, [] { gate.parent(); }, [] { gate.child(); });
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop.load()) {
      const ForkGate::Inside inside(gate);
      gate.safePoint();
    }
  });
  for (int k = 0; k < 20; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      {
        const ForkGate::Inside inside(gate);
        gate.safePoint();
      }
      _exit(7);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
  stop = true;
  worker.join();
}

}  // namespace
}  // namespace kintsugi
