#include "runtime/side_traces.h"

#include <algorithm>

#include "runtime/compiled_trace.h"
#include "support/check.h"

namespace kintsugi::runtime {

ExitSite* SideTraces::find(uint32_t guard) {
  const auto it = sites_.find(guard);
  return it == sites_.end() ? nullptr : &it->second;
}

std::shared_ptr<CompiledTrace> SideTraces::link(uint32_t guard, std::shared_ptr<CompiledTrace> trace,
                                                size_t limit) {
  KINTSUGI_CHECK(trace != nullptr && trace->recording().start != 0, "no side trace is linked to guard ",
                 guard);
  std::shared_ptr<CompiledTrace> gone;
  std::vector<SideLink>& sides = sites_[guard].sides;
  if (sides.size() >= std::max<size_t>(limit, 1)) {
    const auto oldest =
        std::min_element(sides.begin(), sides.end(),
                         [](const SideLink& a, const SideLink& b) { return a.lastUsed < b.lastUsed; });
    gone = std::move(oldest->trace);
    sides.erase(oldest);
  }
  sides.push_back({std::move(trace), ++clock()});
  return gone;
}

uint64_t& SideTraces::clock() {
  static uint64_t time = 0;
  return time;
}

std::shared_ptr<CompiledTrace> SideTraces::unlink(uint64_t lastUsed) {
  for (auto& [guard, site] : sites_) {
    for (size_t i = 0; i < site.sides.size(); ++i) {
      if (site.sides[i].lastUsed == lastUsed) {
        std::shared_ptr<CompiledTrace> gone = std::move(site.sides[i].trace);
        site.sides.erase(site.sides.begin() + static_cast<std::ptrdiff_t>(i));
        return gone;
      }
    }
  }
  return nullptr;
}

void findOldestLeaf(CompiledTrace& trace, const CompiledTrace& keep, CompiledTrace*& owner,
                    uint64_t& oldest) {
  trace.sides().each([&](uint32_t, const SideLink& link) {
    if (link.trace->sides().count() > 0) {
      findOldestLeaf(*link.trace, keep, owner, oldest);
    } else if (link.lastUsed < oldest && link.trace.get() != &keep) {
      owner = &trace;
      oldest = link.lastUsed;
    }
  });
}

size_t SideTraces::count() const {
  size_t total = 0;
  each([&total](uint32_t, const SideLink& link) { total += 1 + link.trace->sides().count(); });
  return total;
}

}  // namespace kintsugi::runtime
