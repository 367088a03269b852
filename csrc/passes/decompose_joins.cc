// Concatenations that are no part of a computation (decompose_windows.cc has those that are): the arguments
// one after the other, in memory that they may be computed right into (passes/place_parts.h).
#include <algorithm>

#include "passes/build_graph.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

namespace {

using D = Decomposer;

NodeId joined(D& d, bool stacked) {
  // Each part is a kernel, or a share of one. More take longer to compile than ATen's one copy is worth; with
  // fewer, what makes the parts is not computed in place.
  constexpr size_t kMostParts = 64;
  std::vector<NodeId> parts = d.tensors(0);
  const auto rank = static_cast<int64_t>(d.sizes().size());
  const auto named = static_cast<int64_t>(d.number(1, 0));
  const int64_t dim = named < 0 ? named + rank : named;
  // A small float that is loaded and stored again may be another NaN.
  const bool fits = !d.failed() && !parts.empty() && parts.size() <= kMostParts && dim >= 0 && dim < rank &&
                    !(d.strict() && isSmallFloat(d.elem()));
  if (!fits) {
    return d.fail();
  }
  for (NodeId& part : parts) {
    part = d.cast(part, d.elem());
    if (d.failed() || d.node(part).kind == NodeKind::kConst) {
      return d.fail();
    }
  }
  return d.join(std::move(parts), static_cast<uint32_t>(dim), stacked);
}

}  // namespace

namespace decompositions {

// (tensors, dim)
NodeId concatenated(D& d) { return joined(d, false); }

NodeId stacked(D& d) { return joined(d, true); }

}  // namespace decompositions

}  // namespace kintsugi::passes
