// The columns of ops/operators.def that are functions: how operators are differentiated, decomposed, and
// where their views lie. Each rule that a row names is declared here, and defined in the file that
// operators.def tells.
//
//   const Decomposition* row = decompositionOf(ops::Operator::kGelu);   row->run(decomposer)
//
// Ownership: constants. Threads: any. No GIL. Nothing invalidates it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/operator.h"
#include "passes/tensor_graph.h"

namespace kintsugi::passes {

class Decomposer;
class GradientBuilder;
struct View;

namespace decompositions {
#define KTG_POINT(form, core, flags) NodeId form(Decomposer& d, Core op);
#define KTG_POINTWISE(rule, flags) NodeId rule(Decomposer& d);
#define KTG_DECOMPOSE(rule, flags) NodeId rule(Decomposer& d);
#define KTG_JOIN(rule) NodeId rule(Decomposer& d);
#define KTG_OPERATOR(id, name, ...) __VA_ARGS__
#include "ops/operators.def"
}  // namespace decompositions

namespace gradients {
#define KTG_GRADIENT(rule) bool rule(GradientBuilder& b);
#define KTG_OPERATOR(id, name, ...) __VA_ARGS__
#include "ops/operators.def"
}  // namespace gradients

namespace views {
#define KTG_VIEW(rule) bool rule(const View& view, std::vector<int64_t>& offsets);
#define KTG_OPERATOR(id, name, ...) __VA_ARGS__
#include "ops/operators.def"
}  // namespace views

// How an operator becomes core operations.
struct Decomposition {
  NodeId (*make)(Decomposer& d) = nullptr;
  NodeId (*form)(Decomposer& d, Core op) = nullptr;  // instead: one operation
  Core core = Core::kAdd;
  bool pointwise = false;  // element by element
  bool exact = false;      // bit by bit what ATen computes
  bool onlyFused = false;  // worth it only where all that uses the result is computed element by element
  bool numbers = false;    // takes numbers that each run computes, by as() alone

  // kNone: the rule refuses these arguments, and the operator stays a call.
  NodeId run(Decomposer& d) const { return form != nullptr ? form(d, core) : make(d); }
};
// Null: the operator has no decomposition.
const Decomposition* decompositionOf(ops::Operator op);
// The rule for operators without a decomposition, or whose decomposition refuses these arguments; null: none.
const Decomposition* joinOf(ops::Operator op);

// How an operator is differentiated.
struct GradientRule {
  bool (*make)(GradientBuilder& b) =
      nullptr;  // false: the rule does not fit; null: by running it with autograd
  bool known = false;
};
// Null: the operator can't be differentiated.
const GradientRule* gradientOf(ops::Operator op);

// Computes the offsets of results in the memory of the first operand. False: not a view, or not known.
using ViewRule = bool (*)(const View& view, std::vector<int64_t>& offsets);
// Null: the operator makes no view.
ViewRule viewOf(ops::Operator op);
inline bool isView(ops::Operator op) { return viewOf(op) != nullptr; }

}  // namespace kintsugi::passes
