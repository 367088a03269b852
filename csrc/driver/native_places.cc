#include "driver/native_places.h"

#include <algorithm>
#include <span>

#include "ir/trace.h"
#include "support/target.h"

namespace kintsugi::driver {

namespace {

using runtime::NativePlan;
using runtime::NativeStepKind;

// By slot: the last step that uses the memory of the slot's tensor, directly or through views.
std::vector<size_t> lastLooks(const NativePlan& plan, const std::vector<std::vector<uint32_t>>& usedBy,
                              const std::vector<std::pair<uint32_t, uint32_t>>& aliases) {
  size_t slots = 0;
  for (const std::vector<uint32_t>& used : usedBy) {
    for (const uint32_t slot : used) {
      slots = std::max<size_t>(slots, slot + 1);
    }
  }
  for (const uint32_t slot : plan.outputs) {
    slots = slot != ir::kNone ? std::max<size_t>(slots, slot + 1) : slots;
  }
  for (const auto& [from, to] : aliases) {
    slots = std::max<size_t>(slots, std::max(from, to) + 1);
  }
  std::vector<size_t> last(slots, 0);
  for (size_t at = 0; at < usedBy.size(); ++at) {
    for (const uint32_t slot : usedBy[at]) {
      last[slot] = at;
    }
  }
  for (const uint32_t slot : plan.outputs) {
    if (slot != ir::kNone) {
      last[slot] = usedBy.size();  // for ever
    }
  }
  for (size_t k = aliases.size(); k-- > 0;) {
    last[aliases[k].first] = std::max(last[aliases[k].first], last[aliases[k].second]);
  }
  return last;
}

int64_t elementsOf(const torchapi::TensorLayout& layout) {
  int64_t count = 1;
  for (const int64_t size : layout.sizes) {
    count *= size;
  }
  return count;
}

std::span<runtime::NativeMade> madeAt(NativePlan& plan, size_t step) {
  const runtime::NativePlanStep& at = plan.steps[step];
  if (at.kind == NativeStepKind::kKernel) {
    return plan.kernels[at.index].made;
  }
  return at.kind == NativeStepKind::kProduct ? std::span(plan.products[at.index].made)
                                             : std::span<runtime::NativeMade>();
}

}  // namespace

// Assigns places: memory that does not leave the segment is kept for later runs. Two tensors of one layout
// share a place if the last use of one comes before the other is made. If something still refers to the
// tensor when its place is needed, the run allocates a new one.
void keepPlaces(NativePlan& plan, const std::vector<std::vector<uint32_t>>& usedBy,
                const std::vector<std::pair<uint32_t, uint32_t>>& aliases, bool all) {
  struct Place {
    const torchapi::TensorLayout* layout;
    size_t until;
  };
  const Target::Costs& costs = target().costs;
  const std::vector<size_t> last = lastLooks(plan, usedBy, aliases);
  std::vector<Place> places;
  int64_t kept = 0;
  for (size_t at = plan.steadySteps; at < plan.steps.size(); ++at) {
    for (runtime::NativeMade& made : madeAt(plan, at)) {
      const torchapi::TensorLayout& wanted = made.layout;
      const bool varies = made.layout.varies();
      if (last[made.slot] == usedBy.size() || varies || (!all && elementsOf(wanted) > costs.smallTensor)) {
        continue;
      }
      const auto place = std::find_if(places.begin(), places.end(),
                                      [&](const Place& p) { return p.until < at && *p.layout == wanted; });
      made.place = static_cast<uint32_t>(place - places.begin());
      if (place == places.end() && !all && kept + elementsOf(wanted) > costs.keptElements) {
        made.place = ir::kNone;
      } else if (place == places.end()) {
        kept += elementsOf(wanted);
        places.push_back({&wanted, last[made.slot]});
      } else {
        place->until = last[made.slot];
      }
    }
  }
  plan.keptCount = places.size();
}

}  // namespace kintsugi::driver
