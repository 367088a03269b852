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
  const ops::ForeachTakes takes = ops::infoOf(each).foreach.takes;
  const bool numbers = parsed.overload == "Scalar" || parsed.overload == "ScalarList";
  if (each == Operator::kUnknown || (takes == ops::ForeachTakes::kNumbers && !numbers) ||
      (takes == ops::ForeachTakes::kLists && parsed.overload != "List") || parsed.overload.ends_with("out")) {
    return std::nullopt;
  }
  return ForeachOperator{each, parsed.inPlace};
}

}  // namespace kintsugi::passes
