#include "passes/drop_round_trips.h"

namespace kintsugi::passes {

namespace {

// What a type can tell apart: digits of the significand (of an integer, without its sign), and powers of two.
struct Range {
  int digits;
  int exponents;  // 0: an integer
  bool negative;
};

Range rangeOf(Elem elem) {
  switch (elem) {
    case Elem::kBool:
      return {1, 0, false};
    case Elem::kU8:
      return {8, 0, false};
    case Elem::kI8:
      return {7, 0, true};
    case Elem::kI16:
      return {15, 0, true};
    case Elem::kI32:
      return {31, 0, true};
    case Elem::kI64:
      return {63, 0, true};
    case Elem::kF16:
      return {11, 5, true};
    case Elem::kBF16:
      return {8, 8, true};
    case Elem::kF32:
      return {24, 8, true};
    case Elem::kF64:
      return {53, 11, true};
    case Elem::kOther:
      break;
  }
  return {0, 0, false};
}

}  // namespace

bool holdsAll(Elem from, Elem to) {
  if (from == Elem::kOther || to == Elem::kOther) return from == to;
  const Range small = rangeOf(from), large = rangeOf(to);
  // The exponents of the smallest float reach beyond its digits, so an integer of as many digits fits.
  return small.digits <= large.digits && small.exponents <= large.exponents &&
         small.negative <= large.negative;
}

void dropRoundTrips(TensorGraph& graph) {
  const auto isCast = [](const Node& node) {
    return node.kind == NodeKind::kPoint && node.op == Core::kCast;
  };
  for (Node& node : graph.nodes) {
    if (!isCast(node)) continue;
    const Node& wide = graph.nodes[node.args[0]];
    if (!isCast(wide)) continue;
    const Elem from = graph.nodes[wide.args[0]].elem;
    if (from == node.elem && holdsAll(from, wide.elem)) {
      node.args[0] = wide.args[0];
    }
  }
}

}  // namespace kintsugi::passes
