#include "passes/write_tracker.h"

#include <algorithm>

namespace kintsugi::passes {

using ir::ValueId;

namespace {

// No two elements are one, whatever the order of the dimensions.
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

}  // namespace

void WriteTracker::setSame(ValueId value, ValueId other) {
  tensorOf_[value] = tensorOf_[other];
  contentOf_[value] = contentOf_[other];
  stale_[value] = stale_[other];
}

void WriteTracker::share(ValueId value) {
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

void WriteTracker::write(ValueId value, NodeId content) {
  const NodeId tensor = tensorOf_[value];
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
  // All that was to be stored where this is stored.
  std::erase_if(pending_, [&](const Pending& p) {
    return isSame(p.tensor, tensor) || (isSame(tensor, input) && memoryOf(graph_, p.tensor).base == input);
  });
  pending_.push_back({tensor, content});
}

void WriteTracker::finish() {
  for (const Pending& p : pending_) {
    const MemoryPlace place = memoryOf(graph_, p.tensor);
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), place.base);
    const Node& to = graph_.nodes[p.tensor];
    graph_.writes.push_back({.input = static_cast<uint32_t>(input - graph_.inputs.begin()),
                             .offset = place.offset,
                             .elem = to.elem,
                             .sizes = to.sizes,
                             .strides = to.strides});
    graph_.outputs.push_back(p.content);
  }
  for (size_t k = 0; k < graph_.inputs.size(); ++k) {
    if (const auto found = counts_.find(graph_.inputs[k]); found != counts_.end()) {
      graph_.written.push_back({static_cast<uint32_t>(k), found->second});
    }
  }
}

}  // namespace kintsugi::passes
