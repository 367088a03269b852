#include "passes/operator_rules.h"

#include <array>

namespace kintsugi::passes {

namespace {

using ops::kOperatorCount;

enum Flag : uint8_t { kExact = 1, kOnlyFused = 2, kNumbers = 4 };

constexpr Decomposition withFlags(Decomposition row, int flags) {
  row.exact = (flags & kExact) != 0;
  row.onlyFused = (flags & kOnlyFused) != 0;
  row.numbers = (flags & kNumbers) != 0;
  return row;
}

// Tables by ops::Operator; the first entry is that of operators without a row.
#define KTG_POINT(shape, op, flags) \
  withFlags({.form = decompositions::shape, .core = Core::op, .pointwise = true}, flags)
#define KTG_POINTWISE(rule, flags) withFlags({.make = decompositions::rule, .pointwise = true}, flags)
#define KTG_DECOMPOSE(rule, flags) withFlags({.make = decompositions::rule}, flags)
#define KTG_OPERATOR(id, name, ...) Decomposition{__VA_ARGS__},
constexpr std::array<Decomposition, kOperatorCount> kDecompositions = {
    Decomposition{},
#include "ops/operators.def"
};

#define KTG_JOIN(rule) .make = decompositions::rule, .exact = true
#define KTG_OPERATOR(id, name, ...) Decomposition{__VA_ARGS__},
constexpr std::array<Decomposition, kOperatorCount> kJoins = {
    Decomposition{},
#include "ops/operators.def"
};

#define KTG_GRADIENT(rule) .make = gradients::rule, .known = true
#define KTG_TAPED .known = true
#define KTG_OPERATOR(id, name, ...) GradientRule{__VA_ARGS__},
constexpr std::array<GradientRule, kOperatorCount> kGradients = {
    GradientRule{},
#include "ops/operators.def"
};

#define KTG_VIEW(rule) views::rule
#define KTG_OPERATOR(id, name, ...) ViewRule{__VA_ARGS__},
constexpr std::array<ViewRule, kOperatorCount> kViews = {
    ViewRule{},
#include "ops/operators.def"
};

template <class T>
const T& rowOf(const std::array<T, kOperatorCount>& rows, ops::Operator op) {
  return rows[static_cast<size_t>(op)];
}

const Decomposition* orNull(const Decomposition& row) {
  return row.make != nullptr || row.form != nullptr ? &row : nullptr;
}

}  // namespace

const Decomposition* decompositionOf(ops::Operator op) { return orNull(rowOf(kDecompositions, op)); }
const Decomposition* joinOf(ops::Operator op) { return orNull(rowOf(kJoins, op)); }

const GradientRule* gradientOf(ops::Operator op) {
  const GradientRule& rule = rowOf(kGradients, op);
  return rule.known ? &rule : nullptr;
}

ViewRule viewOf(ops::Operator op) { return rowOf(kViews, op); }

}  // namespace kintsugi::passes
