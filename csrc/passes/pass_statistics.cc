#include "passes/pass_statistics.h"

#include <algorithm>
#include <mutex>

#include "support/clock.h"

namespace kintsugi::passes {

namespace {

std::mutex gMutex;
std::vector<PassTotals> gTotals;

}  // namespace

std::vector<PassTotals> passStatistics() {
  const std::lock_guard lock(gMutex);
  return gTotals;
}

void clearPassStatistics() {
  const std::lock_guard lock(gMutex);
  gTotals.clear();
}

PassTimer::PassTimer(const char* kind, const char* name, std::function<size_t()> size)
    : kind_(kind), name_(name), size_(std::move(size)), before_(size_()), start_(nowNs()) {}

PassTimer::~PassTimer() {
  const uint64_t took = nowNs() - start_;
  const size_t after = size_();
  const std::lock_guard lock(gMutex);
  auto row = std::find_if(gTotals.begin(), gTotals.end(), [this](const PassTotals& totals) {
    return totals.name == name_ && totals.kind == kind_;
  });
  if (row == gTotals.end()) {
    gTotals.push_back({kind_, name_});
    row = gTotals.end() - 1;
  }
  ++row->runs;
  row->nanoseconds += took;
  row->before += before_;
  row->after += after;
}

}  // namespace kintsugi::passes
