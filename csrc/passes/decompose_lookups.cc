// Elements that integers name: embedding, index_select, gather, indexing by one tensor, and the losses that
// pick one element of each row. The table is memory; a view of it without the dimension that is looked up in
// says where the first place is, and Core::kTake goes from there (Node::indexed). A place that is not there
// is found in the run, which replay then repeats, to raise what eager mode raises.
#include "passes/build_graph.h"
#include "passes/operator_rules.h"

namespace kintsugi::passes {

namespace {

using D = Decomposer;

// Rows of `table` along `dim`, as the result has them: the dimensions before, those of the index, those
// after.
NodeId lookUp(D& d, NodeId table, size_t dim, NodeId index, bool wraps) {
  const Node from = d.node(table), by = d.node(index);
  if (!allFixed(from.sizes) || !allFixed(from.strides) || dim >= from.sizes.size()) {
    return d.fail();
  }
  std::vector<Size> sizes(from.sizes.begin(), from.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  std::vector<Size> strides(from.strides.begin(), from.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  sizes.insert(sizes.end(), by.sizes.size(), Size(1));
  strides.insert(strides.end(), by.sizes.size(), Size(0));
  std::vector<Size> places = by.sizes, steps = by.strides;
  for (size_t k = dim + 1; k < from.sizes.size(); ++k) {
    sizes.push_back(from.sizes[k]);
    strides.push_back(from.strides[k]);
    places.emplace_back(1);
    steps.emplace_back(0);
  }
  const IndexedDim indexed{from.strides[dim].hint, from.sizes[dim].hint, wraps};
  const NodeId first = d.view(table, std::move(sizes), std::move(strides));
  const bool same = places.size() == by.sizes.size();
  return d.failed()
             ? ir::kNone
             : d.take(first, same ? index : d.view(index, std::move(places), std::move(steps)), indexed);
}

std::optional<size_t> dimension(D& d, size_t operand, size_t rank) {
  const std::optional<double> named = d.number(operand);
  const auto count = static_cast<int64_t>(rank);
  const int64_t dim = named ? static_cast<int64_t>(*named) : count;
  return dim >= -count && dim < count ? std::optional(static_cast<size_t>(dim < 0 ? dim + count : dim))
                                      : std::nullopt;
}

// A loss for each row: what the target names of the dimension after the first one.
struct Rows {
  NodeId picked = ir::kNone;  // by target
  NodeId ignored = ir::kNone;
  NodeId weight = ir::kNone;  // none: 1
  size_t rank = 0;
};

// Operands: self, target, weight; `ignore`: of the target that counts for nothing.
std::optional<Rows> pickRows(D& d, size_t ignore) {
  const NodeId x = d.tensor(0), target = d.tensor(1);
  const std::optional<double> nobody = d.number(ignore);
  if (d.failed() || d.elem() != Elem::kF32 || !nobody || d.node(x).elem != Elem::kF32 ||
      d.node(target).elem != Elem::kI64) {
    return std::nullopt;
  }
  const Node from = d.node(x), by = d.node(target);
  Rows rows;
  rows.rank = from.sizes.size();
  if (rows.rank < 2 || by.sizes.size() + 1 != rows.rank || !from.sizes[1].fixed() ||
      !from.strides[1].fixed()) {
    return std::nullopt;
  }
  std::vector<Size> sizes = from.sizes, strides = from.strides, places = by.sizes, steps = by.strides;
  sizes[1] = 1;
  strides[1] = 0;
  places.insert(places.begin() + 1, Size(1));
  steps.insert(steps.begin() + 1, Size(0));
  for (size_t k = 0; k < rows.rank; ++k) {
    if (places[k] != sizes[k]) {
      return std::nullopt;
    }
  }
  const NodeId named = d.view(target, std::move(places), std::move(steps));
  rows.ignored = d.point(Core::kEq, Elem::kBool, {named, d.constant(*nobody, Elem::kI64)});
  const NodeId index = d.point(Core::kSelect, Elem::kI64, {rows.ignored, d.constant(0, Elem::kI64), named});
  IndexedDim indexed{from.strides[1].hint, from.sizes[1].hint, false};
  rows.picked = d.take(d.view(x, std::move(sizes), std::move(strides)), index, indexed);
  if (!d.isNone(2)) {
    const NodeId weight = d.tensor(2);
    if (d.failed() || d.node(weight).elem != Elem::kF32 || d.node(weight).sizes.size() != 1 ||
        !allFixed(d.node(weight).strides)) {
      return std::nullopt;
    }
    indexed.step = d.node(weight).strides[0].hint;
    const std::vector<Size> one(rows.rank, Size(1)), still(rows.rank, Size(0));
    rows.weight = d.take(d.view(weight, one, still), index, indexed);
  }
  return d.failed() ? std::nullopt : std::optional(rows);
}

// `losses` of all rows as the operand `reduction` asks for it: each, their mean, their sum.
NodeId reduceRows(D& d, const Rows& rows, NodeId losses, size_t reduction) {
  constexpr double kNone = 0, kMean = 1, kSum = 2;
  const NodeId zero = d.constant(0, Elem::kF32);
  if (rows.weight != ir::kNone) {
    losses = d.point(Core::kMul, Elem::kF32, {losses, rows.weight});
  }
  losses = d.point(Core::kSelect, Elem::kF32, {rows.ignored, zero, losses});
  const double how = d.number(reduction, kMean);
  if (how == kNone || d.failed()) {
    return losses;
  }
  const NodeId sum = d.reduce(Core::kReduceSum, losses, rows.rank);
  if (how == kSum) {
    return sum;
  }
  const NodeId one = rows.weight != ir::kNone ? rows.weight : d.constant(1, Elem::kF32);
  const NodeId counted = d.point(Core::kSelect, Elem::kF32, {rows.ignored, zero, one});
  const NodeId count = d.reduce(Core::kReduceSum, counted, rows.rank);
  // Ones are counted as floats.
  constexpr int64_t kMost = int64_t{1} << 24;
  const bool few = how == kMean && !d.failed() && elementCount(d.node(losses).sizes).hint < kMost;
  return few ? d.point(Core::kDiv, Elem::kF32, {sum, count}) : d.fail();
}

}  // namespace

namespace decompositions {

// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
NodeId embedding(D& d) {
  const NodeId table = d.tensor(0), index = d.tensor(1);
  return d.failed() || d.node(table).sizes.size() != 2 ? d.fail() : lookUp(d, table, 0, index, false);
}

// (self, dim, index)
NodeId indexSelect(D& d) {
  const NodeId table = d.tensor(0), index = d.tensor(2);
  const auto dim = d.failed() ? std::nullopt : dimension(d, 1, d.node(table).sizes.size());
  return !dim || d.node(index).sizes.size() != 1 ? d.fail() : lookUp(d, table, *dim, index, false);
}

// (self, indices): all of them none but one
NodeId indexBy(D& d) {
  const NodeId table = d.tensor(0);
  const auto [dim, index] = d.onlyTensor(1);
  return d.failed() ? ir::kNone : lookUp(d, table, dim, index, true);
}

// (self, dim, index, sparse_grad)
NodeId gather(D& d) {
  const NodeId table = d.tensor(0), index = d.tensor(2);
  const auto dim = d.failed() ? std::nullopt : dimension(d, 1, d.node(table).sizes.size());
  if (!dim || !allFixed(d.node(index).sizes) || !allFixed(d.node(table).sizes) ||
      !allFixed(d.node(table).strides) || d.node(index).sizes.size() != d.node(table).sizes.size()) {
    return d.fail();
  }
  const Node from = d.node(table);
  std::vector<Size> sizes = d.node(index).sizes, strides = from.strides;
  sizes[*dim] = 1;
  strides[*dim] = 0;
  const NodeId first = d.view(table, std::move(sizes), std::move(strides));
  return d.take(first, index, {from.strides[*dim].hint, from.sizes[*dim].hint, false});
}

// (self, target, weight, reduction, ignore_index, label_smoothing)
NodeId crossEntropy(D& d) {
  const std::optional<Rows> rows = d.number(5, 0) == 0 ? pickRows(d, 4) : std::nullopt;
  if (!rows) {
    return d.fail();
  }
  const NodeId x = d.tensor(0);
  const size_t trailing = rows->rank - 2;
  const NodeId most = d.reduce(Core::kReduceMax, x, 1, trailing);
  const NodeId power = d.point(Core::kExp, Elem::kF32, {d.point(Core::kSub, Elem::kF32, {x, most})});
  const NodeId sum = d.reduce(Core::kReduceSum, power, 1, trailing);
  const NodeId log = d.point(Core::kLog, Elem::kF32, {sum});
  const NodeId shifted = d.point(Core::kSub, Elem::kF32, {rows->picked, most});
  return reduceRows(d, *rows, d.point(Core::kSub, Elem::kF32, {log, shifted}), 3);
}

// (self, target, weight, reduction, ignore_index)
NodeId negativeLikelihood(D& d) {
  const std::optional<Rows> rows = d.strict() ? std::nullopt : pickRows(d, 4);
  return rows ? reduceRows(d, *rows, d.point(Core::kNeg, Elem::kF32, {rows->picked}), 3) : d.fail();
}

}  // namespace decompositions

}  // namespace kintsugi::passes
