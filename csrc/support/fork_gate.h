// ForkGate: fork() waits at this gate until the work behind it has come to a place where it can be left.
//
// A forked child has the forking thread alone. What other threads had half done stays half done there, and
// the locks that they held stay locked. So long work is done inside the gate, and says where it holds no lock
// and has published nothing (a safe point): there, or outside, a fork finds it.
//
//   const ForkGate::Inside inside(gate);
//   for (const Kernel& kernel : kernels) {
//     gate.safePoint();   // a fork may happen here: in the child, this work is begun anew by somebody
//     compile(kernel);
//   }
//   publish();
//
// Ownership: an object with static storage, never destroyed; prepare(), parent() and child() are called by
// the handlers of pthread_atfork(). Threads: any number of them may be inside. The thread that forks
// must not be inside. GIL: never asked for; it may be held. Invalidation: none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace kintsugi {

class ForkGate {
 public:
  ForkGate() : changed_(new std::condition_variable()) {}
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;

  // A thread is inside while it has one of these. Not to be nested.
  class Inside {
   public:
    explicit Inside(ForkGate& gate) : gate_(gate) { gate_.enter(); }
    ~Inside() { gate_.leave(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    ForkGate& gate_;
  };
  // By a thread that is inside: lets forks that wait go first.
  void safePoint() {
    if (forking_.load(std::memory_order_relaxed)) [[unlikely]] {
      leave();
      enter();
    }
  }

  void prepare();
  void parent();
  // Nobody is inside any more.
  void child();

 private:
  void enter();
  void leave();

  std::mutex mutex_;
  std::condition_variable* changed_;  // leaked in a child: threads that it does not have wait for it
  uint32_t inside_ = 0;
  std::atomic<bool> forking_{false};
};

// The gate of those who make machine code.
ForkGate& compileGate();

}  // namespace kintsugi
