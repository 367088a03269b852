// Derivatives of what only moves elements: views, slices, concatenation.
#include <algorithm>

#include "passes/gradient_builder.h"

namespace kintsugi::passes {

namespace {

using B = GradientBuilder;
using V = B::V;
using ops::Operator;

using Dims = std::vector<int64_t>;

B::Operand val(V value) { return B::val(value); }

B::Operand integer(int64_t number) { return B::Operand::integer(number); }

V backOf(B& b, Operator op, std::initializer_list<B::Operand> operands) {
  return b.make(op, operands, ir::TensorDesc::packed(b.dtype(b.tensor(0)), b.sizes(b.tensor(0))));
}

// All results next to each other; zeros where no gradient arrives.
bool joined(B& b, Operator op, size_t dim) {
  std::vector<V> parts;
  for (size_t r = 0; r < b.resultCount(); ++r) {
    const V part = b.gradient(r);
    parts.push_back(part != ir::kNone ? part : b.zeros(b.dtype(b.result(r)), b.sizes(b.result(r))));
  }
  b.accumulateGradient(0, b.join(op, parts, dim, b.sizes(b.tensor(0))));
  return true;
}

}  // namespace

namespace gradients {

bool reshaped(B& b) {
  b.accumulateGradient(0, b.reshape(b.gradient(), b.sizes(b.tensor(0))));
  return true;
}

bool transposed(B& b) {
  const V x = b.tensor(0);
  b.accumulateGradient(0, b.transpose(b.gradient(), b.dimOf(b.integer(1), x), b.dimOf(b.integer(2), x)));
  return true;
}

bool turned(B& b) {
  const size_t rank = b.rank(b.tensor(0));
  b.accumulateGradient(0, rank < 2 ? b.gradient() : b.transpose(b.gradient(), rank - 2, rank - 1));
  return true;
}

bool permuted(B& b) {
  const V x = b.tensor(0);
  Dims back(b.rank(x));
  const Dims dims = b.ints(1);
  for (size_t d = 0; d < dims.size(); ++d) {
    back[b.dimOf(dims[d], x)] = static_cast<int64_t>(d);
  }
  b.accumulateGradient(0, b.permute(b.gradient(), back));
  return true;
}

bool reversed(B& b) {
  Dims back(b.rank(b.tensor(0)));
  for (size_t d = 0; d < back.size(); ++d) {
    back[d] = static_cast<int64_t>(back.size() - 1 - d);
  }
  b.accumulateGradient(0, b.permute(b.gradient(), back));
  return true;
}

bool moved(B& b) {
  const V x = b.tensor(0);
  Dims back;
  for (size_t d = 0; d < b.rank(x); ++d) {
    if (d != b.dimOf(b.integer(2), x)) {
      back.push_back(static_cast<int64_t>(d));
    }
  }
  back.insert(back.begin() + static_cast<std::ptrdiff_t>(b.dimOf(b.integer(1), x)),
              static_cast<int64_t>(b.dimOf(b.integer(2), x)));
  b.accumulateGradient(0, b.permute(b.gradient(), back));
  return true;
}

bool selected(B& b) {
  const V x = b.tensor(0);
  const auto dim = static_cast<int64_t>(b.dimOf(b.integer(1), x));
  if (!b.isNumber(2)) {
    return false;
  }
  b.accumulateGradient(0, backOf(b, Operator::kSelectBackward,
                                 {val(b.gradient()), b.list(b.sizes(x)), integer(dim), b.operand(2)}));
  return true;
}

// (self, dim, start, end, step)
bool sliced(B& b) {
  const V x = b.tensor(0);
  const size_t dim = b.dimOf(b.isNone(1) ? 0 : b.integer(1), x);
  const int64_t size = b.sizes(x)[dim];
  const auto bound = [&](size_t k, int64_t otherwise) {
    return b.isNone(k) ? otherwise
                       : std::clamp<int64_t>(b.integer(k) + (b.integer(k) < 0 ? size : 0), 0, size);
  };
  if ((!b.isNone(2) && !b.isNumber(2)) || (!b.isNone(3) && !b.isNumber(3)) || !b.isNumber(4)) {
    return false;
  }
  const int64_t begin = bound(2, 0), end = bound(3, size);
  if (begin == 0 && end == size && b.integer(4) == 1) {
    return same(b);
  }
  b.accumulateGradient(0, backOf(b, Operator::kSliceBackward,
                                 {val(b.gradient()), b.list(b.sizes(x)), integer(static_cast<int64_t>(dim)),
                                  integer(begin), integer(end), b.operand(4)}));
  return true;
}

// (self, pad, value) or (self, pad, mode, value), of the last dimensions first: what lies inside.
bool padded(B& b) {
  const V x = b.tensor(0);
  const std::vector<ir::Operand> pads = b.elements(1);
  const bool plain = std::ranges::all_of(
      pads, [](const ir::Operand& pad) { return pad.kind == ir::OperandKind::kInt && pad.i >= 0; });
  const bool constant = b.operand(2).kind != ir::OperandKind::kStr || b.text(2) == "constant";
  if (!plain || !constant || pads.size() / 2 > b.rank(x)) {
    return false;
  }
  V inside = b.gradient();
  for (size_t k = 0; k + 1 < pads.size(); k += 2) {
    const size_t dim = b.rank(x) - 1 - k / 2;
    inside = b.slice(inside, dim, pads[k].i, pads[k].i + b.sizes(x)[dim]);
  }
  b.accumulateGradient(0, b.contiguous(inside));
  return true;
}

// (self, dim, start, length)
bool narrowed(B& b) {
  const V x = b.tensor(0);
  const size_t dim = b.dimOf(b.integer(1), x);
  if (!b.isNumber(2) || !b.isNumber(3)) {
    return false;
  }
  const int64_t begin = b.integer(2) + (b.integer(2) < 0 ? b.sizes(x)[dim] : 0);
  b.accumulateGradient(0, backOf(b, Operator::kSliceBackward,
                                 {val(b.gradient()), b.list(b.sizes(x)), integer(static_cast<int64_t>(dim)),
                                  integer(begin), integer(begin + b.integer(3)), integer(1)}));
  return true;
}

bool split(B& b) { return joined(b, Operator::kCat, b.dimOf(b.isNone(2) ? 0 : b.integer(2), b.tensor(0))); }

bool unbound(B& b) {
  return joined(b, Operator::kStack, b.dimOf(b.isNone(1) ? 0 : b.integer(1), b.tensor(0)));
}

bool concatenated(B& b) {
  const V g = b.gradient();
  const size_t dim = b.dimOf(b.isNone(1) ? 0 : b.integer(1), g);
  int64_t at = 0;
  for (const B::Operand& part : b.elements(0)) {
    if (!part.isValue() || b.rank(part.id) != b.rank(g)) {
      return false;
    }
  }
  for (const B::Operand& part : b.elements(0)) {
    const int64_t size = b.sizes(part.id)[dim];
    if (b.isActive(part.id)) {
      b.accumulateInto(part.id, b.slice(g, dim, at, at + size));
    }
    at += size;
  }
  return true;
}

bool stacked(B& b) {
  const V g = b.gradient();
  const size_t dim = b.dimOf(b.isNone(1) ? 0 : b.integer(1), g);
  int64_t at = 0;
  for (const B::Operand& part : b.elements(0)) {
    if (b.isActive(part.id)) {
      b.accumulateInto(part.id, b.select(g, dim, at));
    }
    ++at;
  }
  return true;
}

}  // namespace gradients

}  // namespace kintsugi::passes
