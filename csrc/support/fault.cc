#include "support/fault.h"

#include <mutex>

#include "support/check.h"

namespace kintsugi {

namespace {

struct Armed {
  std::mutex lock;
  std::string name;
  int passes = 0;
  bool failed = false;
};

Armed& state() {
  static Armed armed;
  return armed;
}

}  // namespace

namespace detail {

std::atomic<bool> armed{false};

void maybeFail(std::string_view name) {
  Armed& now = state();
  {
    const std::lock_guard<std::mutex> guard(now.lock);
    if (now.name != name || now.passes-- > 0) {
      return;
    }
    now.name.clear();
    now.failed = true;
    armed.store(false, std::memory_order_relaxed);
  }
  failAsAsked("a failure that was asked for (" + std::string(name) + ")");
}

}  // namespace detail

void failAt(std::string name, int after) {
  Armed& now = state();
  const std::lock_guard<std::mutex> guard(now.lock);
  detail::armed.store(!name.empty(), std::memory_order_relaxed);
  now.name = std::move(name);
  now.passes = after;
  now.failed = false;
}

bool hasFailed() {
  Armed& now = state();
  const std::lock_guard<std::mutex> guard(now.lock);
  return now.failed;
}

}  // namespace kintsugi
