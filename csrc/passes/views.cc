// View operators: finds whether the result shares memory with the first operand, and at which offset. Sizes
// and strides of the result have been recorded.
//
//   aten.select.int %0, 0, 2      %0 of strides [8, 1]: a view that begins at element 16
#include <algorithm>

#include "passes/build_graph.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

using ir::Operand;
using ir::OperandKind;

struct View {
  const ir::Trace& trace;
  std::span<const Operand> operands;
  struct Base {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  Base base;
  std::span<const std::vector<int64_t>> sizes;  // of the results

  std::optional<int64_t> integer(size_t k) const {
    return k < operands.size() && operands[k].kind == OperandKind::kInt ? std::optional(operands[k].i)
                                                                        : std::nullopt;
  }
  // A dimension of the base, counted from its beginning.
  std::optional<size_t> dim(size_t k, int64_t otherwise = 0) const {
    const auto rank = static_cast<int64_t>(base.sizes.size());
    int64_t at = otherwise;
    if (k < operands.size() && operands[k].kind != OperandKind::kNone) {
      if (operands[k].kind != OperandKind::kInt) {
        return std::nullopt;
      }
      at = operands[k].i;
    }
    at += at < 0 ? rank : 0;
    return at >= 0 && at < rank ? std::optional(static_cast<size_t>(at)) : std::nullopt;
  }
};

namespace {

// ATen's rule for when a reshape needs no copy: each run of dimensions that lie one after the other in memory
// has to be split or joined within itself.
bool viewable(const View::Base& base, const std::vector<int64_t>& sizes) {
  const Size elements = elementCount(fixedSizes(base.sizes));
  if (elements == 0 || elementCount(fixedSizes(sizes)) != elements) {
    return false;
  }
  size_t wanted = sizes.size();
  int64_t run = 1, taken = 1;
  int64_t step = base.strides.empty() ? 1 : base.strides.back();
  for (size_t d = base.sizes.size(); d-- > 0;) {
    run *= base.sizes[d];
    if (d != 0 && (base.sizes[d - 1] == 1 || base.strides[d - 1] == run * step)) {
      continue;
    }
    while (wanted > 0 && (taken < run || sizes[wanted - 1] == 1)) {
      taken *= sizes[--wanted];
    }
    if (taken != run) {
      return false;
    }
    step = d > 0 ? base.strides[d - 1] : 1;
    run = taken = 1;
  }
  return wanted == 0 || base.sizes.empty();
}

bool splitAt(const View& view, std::optional<size_t> dim, std::vector<int64_t>& offsets) {
  if (!dim) {
    return false;
  }
  int64_t offset = 0;
  for (const std::vector<int64_t>& sizes : view.sizes) {
    if (sizes.size() != view.base.sizes.size()) {
      return false;
    }
    offsets.push_back(offset);
    offset += sizes[*dim] * view.base.strides[*dim];
  }
  return true;
}

}  // namespace

namespace views {

bool same(const View& view, std::vector<int64_t>& offsets) {
  offsets.assign(view.sizes.size(), 0);
  return true;
}

bool reshape(const View& view, std::vector<int64_t>& offsets) {
  return view.sizes.size() == 1 && viewable(view.base, view.sizes[0]) && same(view, offsets);
}

bool select(const View& view, std::vector<int64_t>& offsets) {
  const auto dim = view.dim(1);
  auto index = view.integer(2);
  if (!dim || !index) {
    return false;
  }
  *index += *index < 0 ? view.base.sizes[*dim] : 0;
  offsets = {*index * view.base.strides[*dim]};
  return true;
}

bool slice(const View& view, std::vector<int64_t>& offsets) {
  const auto dim = view.dim(1);
  const bool fromStart = view.operands.size() <= 2 || view.operands[2].kind == OperandKind::kNone;
  auto start = fromStart ? std::optional<int64_t>(0) : view.integer(2);
  if (!dim || !start) {
    return false;
  }
  const int64_t size = view.base.sizes[*dim];
  *start += *start < 0 ? size : 0;
  offsets = {std::clamp<int64_t>(*start, 0, size) * view.base.strides[*dim]};
  return true;
}

bool split(const View& view, std::vector<int64_t>& offsets) { return splitAt(view, view.dim(2), offsets); }

bool unbind(const View& view, std::vector<int64_t>& offsets) {
  const auto dim = view.dim(1);
  for (size_t k = 0; dim && k < view.sizes.size(); ++k) {
    offsets.push_back(static_cast<int64_t>(k) * view.base.strides[*dim]);
  }
  return dim.has_value();
}

}  // namespace views

bool findViews(const ir::Trace& trace, const ir::Instruction& instruction, const Node& base,
               std::vector<int64_t>& offsets) {
  const ViewRule rule = viewOf(trace.operatorOf(instruction));
  if (rule == nullptr || base.kind == NodeKind::kConst || !allFixed(base.sizes) || !allFixed(base.strides)) {
    return false;
  }
  std::vector<std::vector<int64_t>> sizes;
  for (uint32_t r = 0; r < instruction.resultCount; ++r) {
    const ir::Type& type = trace.values[instruction.firstResult + r];
    if (!trace.hasFixedSizes(type)) {
      return false;
    }
    sizes.push_back(trace.metas[type.meta].sizes);
  }
  offsets.clear();
  const View::Base fixed{hintsOf(base.sizes), hintsOf(base.strides)};
  return rule({trace, trace.operandsOf(instruction), fixed, sizes}, offsets);
}

}  // namespace kintsugi::passes
