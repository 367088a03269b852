#include "passes/foreach_ops.h"

#include "ops/operator.h"

namespace kintsugi::passes {

using ops::Operator;

std::optional<ForeachOperator> findForeach(std::string_view name) {
  ops::ForeachName parsed;
  if (!ops::parseForeach(name, parsed)) {
    return std::nullopt;
  }
  const Operator each = ops::findForeach(parsed.name);
  const bool numbers = parsed.overload == "Scalar" || parsed.overload == "ScalarList";
  // A tensor of weights or factors holds one for each tensor of the lists.
  const bool takesNumbers =
      each == Operator::kLerpScalar || each == Operator::kAddcmul || each == Operator::kAddcdiv;
  const bool lists = ops::infoOf(each).foreach.takes == ops::ForeachTakes::kLists;
  if (each == Operator::kUnknown || (takesNumbers && !numbers) || (lists && parsed.overload != "List") ||
      parsed.overload.ends_with("out")) {
    return std::nullopt;
  }
  return ForeachOperator{each, parsed.inPlace};
}

}  // namespace kintsugi::passes
