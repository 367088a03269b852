#include "passes/write_tracker.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "support/check.h"

namespace kintsugi::passes {

using ir::ValueId;

namespace {

// True if each element has a memory place of its own. A transposed tensor has, an expanded one has not.
bool isInjective(const Node& node) {
  if (!allFixed(node.sizes) || !allFixed(node.strides)) {
    return node.strides == contiguousStrides(node.sizes);
  }
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < node.sizes.size(); ++d) {
    if (node.sizes[d].hint != 1) {
      dims.emplace_back(node.strides[d].hint, node.sizes[d].hint);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t end = 0;  // the last element that the smaller dimensions reach
  for (const auto& [stride, size] : dims) {
    if (stride <= end) {
      return false;
    }
    end += stride * (size - 1);
  }
  return true;
}

struct Extent {
  int64_t size = 1;   // of the tensor that begins first
  int64_t other = 1;  // of the other one
};

// Have two tensors of the same memory, the second `offset` elements after the first, surely no element in
// common? Rows of ten, five of each: strides (10, 1), an offset of 0 rows and 5 columns, and columns 0 to 4
// are not 5 to 9.
bool provablyDisjoint(const Node& first, const Node& second, int64_t offset) {
  for (const Node* node : {&first, &second}) {
    if (!allFixed(node->sizes) || !allFixed(node->strides)) {
      return false;
    }
    if (elementCount(node->sizes).hint == 0) {
      return true;
    }
  }
  std::map<int64_t, Extent, std::greater<>> extents;  // by stride
  const auto add = [&](const Node& node, int64_t Extent::*size) {
    for (size_t d = 0; d < node.sizes.size(); ++d) {
      if (node.sizes[d].hint > 1 && node.strides[d].hint != 0) {
        extents[node.strides[d].hint].*size += node.sizes[d].hint - 1;
      }
    }
  };
  add(first, &Extent::size);
  add(second, &Extent::other);
  bool apart = false;
  int64_t room = std::numeric_limits<int64_t>::max();  // what the smaller strides may reach
  for (const auto& [stride, extent] : extents) {
    const int64_t steps = offset / stride;
    offset %= stride;
    apart = apart || steps >= extent.size;
    const int64_t reach = std::max(extent.size, steps + extent.other);
    if (stride > room / reach) {
      return false;  // an element may have two places
    }
    room = stride;
  }
  return apart || offset != 0;
}

}  // namespace

void WriteTracker::setAlias(ValueId value, ValueId other) {
  KINTSUGI_CHECK(value < tensorOf_.size() && other < tensorOf_.size(), "%", value, " is %", other);
  tensorOf_[value] = tensorOf_[other];
  contentOf_[value] = contentOf_[other];
  stale_[value] = stale_[other];
}

void WriteTracker::noteEscape(ValueId value) {
  if (tensorOf_[value] != ir::kNone) {
    shared_.insert(memoryOf(graph_, tensorOf_[value]).base);
  }
}

bool WriteTracker::mayWrite(ValueId value) const {
  const NodeId tensor = tensorOf_[value];
  if (tensor == ir::kNone || graph_.nodes[tensor].elem == Elem::kOther) {
    return false;
  }
  const NodeId input = memoryOf(graph_, tensor).base;
  return graph_.nodes[input].kind == NodeKind::kInput && !shared_.contains(input) &&
         isInjective(graph_.nodes[tensor]);
}

bool WriteTracker::isSame(NodeId a, NodeId b) const {
  const MemoryPlace x = memoryOf(graph_, a), y = memoryOf(graph_, b);
  return x.base == y.base && x.offset == y.offset && sameLayout(graph_.nodes[a], graph_.nodes[b]);
}

// Where the value's elements lie.
NodeId WriteTracker::placed(ValueId value) const {
  return tensorOf_[value] != ir::kNone ? tensorOf_[value] : contentOf_[value];
}

bool WriteTracker::mayOverlap(ValueId target, ValueId other) const {
  const NodeId to = placed(target), from = placed(other);
  if (to == ir::kNone || from == ir::kNone) {
    return false;
  }
  const MemoryPlace x = memoryOf(graph_, to), y = memoryOf(graph_, from);
  if (x.base != y.base || isSame(to, from)) {
    return false;
  }
  return x.offset <= y.offset ? !provablyDisjoint(graph_.nodes[to], graph_.nodes[from], y.offset - x.offset)
                              : !provablyDisjoint(graph_.nodes[from], graph_.nodes[to], x.offset - y.offset);
}

void WriteTracker::write(ValueId value, NodeId content) {
  const NodeId tensor = tensorOf_[value];
  KINTSUGI_CHECK(tensor != ir::kNone && content < graph_.nodes.size(), "%", value, " is written to by node ",
                 content);
  const MemoryPlace place = memoryOf(graph_, tensor);
  const NodeId input = place.base;
  const bool whole = isSame(tensor, input) && sameLayout(graph_.nodes[content], graph_.nodes[tensor]);
  ++counts_[input];
  for (ValueId other = 0; other < tensorOf_.size(); ++other) {
    const NodeId seen = tensorOf_[other];
    if (seen == ir::kNone || memoryOf(graph_, seen).base != input) {
      continue;
    }
    if (isSame(seen, tensor)) {
      contentOf_[other] = content;
      stale_[other] = false;
    } else if (whole) {
      Node view = graph_.nodes[seen];
      view.kind = NodeKind::kView;
      view.offset = memoryOf(graph_, seen).offset;
      view.args = {content};
      view.instruction = view.value = ir::kNone;
      view.open = false;
      contentOf_[other] = graph_.add(std::move(view));
      stale_[other] = false;
    } else {
      stale_[other] = true;
    }
  }
  // This store covers earlier ones to the same place.
  std::erase_if(pending_, [&](const Pending& p) {
    return isSame(p.tensor, tensor) || (isSame(tensor, input) && memoryOf(graph_, p.tensor).base == input);
  });
  pending_.push_back({tensor, content});
}

void WriteTracker::finish() {
  for (const Pending& p : pending_) {
    const MemoryPlace place = memoryOf(graph_, p.tensor);
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), place.base);
    KINTSUGI_CHECK(input != graph_.inputs.end(), "a write to node ", place.base, ", which is no input");
    const Node& to = graph_.nodes[p.tensor];
    graph_.writes.push_back(
        {to, static_cast<uint32_t>(input - graph_.inputs.begin()), place.offset, to.elem});
    graph_.outputs.push_back(p.content);
  }
  for (size_t k = 0; k < graph_.inputs.size(); ++k) {
    if (const auto found = counts_.find(graph_.inputs[k]); found != counts_.end()) {
      graph_.written.push_back({static_cast<uint32_t>(k), found->second});
    }
  }
}

}  // namespace kintsugi::passes
