#include "support/fork_gate.h"

#include "support/check.h"

namespace kintsugi {

void ForkGate::enter() {
  std::unique_lock lock(mutex_);
  changed_->wait(lock, [this] { return !forking_.load(std::memory_order_relaxed); });
  ++inside_;
}

void ForkGate::leave() {
  const std::lock_guard lock(mutex_);
  KINTSUGI_CHECK(inside_ != 0, "a thread leaves the gate that is not inside");
  --inside_;
  changed_->notify_all();
}

void ForkGate::prepare() {
  std::unique_lock lock(mutex_);
  // One fork at a time.
  changed_->wait(lock, [this] { return !forking_.load(std::memory_order_relaxed); });
  forking_.store(true, std::memory_order_relaxed);
  changed_->wait(lock, [this] { return inside_ == 0; });
  lock.release();  // kept through fork()
}

void ForkGate::parent() {
  forking_.store(false, std::memory_order_relaxed);
  changed_->notify_all();
  mutex_.unlock();
}

void ForkGate::child() {
  changed_ = new std::condition_variable();
  forking_.store(false, std::memory_order_relaxed);
  mutex_.unlock();
}

ForkGate& compileGate() {
  static auto* gate = new ForkGate();
  return *gate;
}

}  // namespace kintsugi
