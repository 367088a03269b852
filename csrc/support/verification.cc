#include "support/verification.h"

#include <atomic>
#include <mutex>

namespace kintsugi {

namespace {

std::atomic<Verification> current{Verification::kOff};
std::atomic<uint64_t> failures{0};

struct LastFailure {
  std::mutex mutex;
  std::string text;
};

// Never destroyed: threads may fail while the process ends.
LastFailure& lastFailure() {
  static auto* last = new LastFailure();
  return *last;
}

}  // namespace

void setVerification(Verification verification) { current.store(verification, std::memory_order_relaxed); }

bool verifying() {
#ifdef KINTSUGI_DEBUG
  return true;
#else
  return current.load(std::memory_order_relaxed) != Verification::kOff;
#endif
}

bool abortsOnFailedCheck() {
#ifdef KINTSUGI_DEBUG
  return true;
#else
  return current.load(std::memory_order_relaxed) == Verification::kAbort;
#endif
}

uint64_t failedCheckCount() { return failures.load(std::memory_order_relaxed); }

std::string lastFailedCheck() {
  std::lock_guard lock(lastFailure().mutex);
  return lastFailure().text;
}

void noteFailedCheck(const std::string& text) {
  failures.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(lastFailure().mutex);
  lastFailure().text = text;
}

}  // namespace kintsugi
