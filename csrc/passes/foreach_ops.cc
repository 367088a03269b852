#include "passes/foreach_ops.h"

#include <algorithm>
#include <array>

namespace kintsugi::passes {

namespace {

struct Row {
  std::string_view name;
  std::string_view each;
};

constexpr auto kRows = std::to_array<Row>({
    {"add", "aten.add.Tensor"},          {"sub", "aten.sub.Tensor"},
    {"mul", "aten.mul.Tensor"},          {"div", "aten.div.Tensor"},
    {"addcmul", "aten.addcmul.default"}, {"addcdiv", "aten.addcdiv.default"},
    {"lerp", "aten.lerp.Scalar"},        {"sqrt", "aten.sqrt.default"},
    {"neg", "aten.neg.default"},         {"abs", "aten.abs.default"},
    {"exp", "aten.exp.default"},         {"log", "aten.log.default"},
    {"tanh", "aten.tanh.default"},       {"erf", "aten.erf.default"},
    {"sigmoid", "aten.sigmoid.default"}, {"reciprocal", "aten.reciprocal.default"},
    {"rsqrt", "aten.rsqrt.default"},     {"copy", "aten.copy.default"},
    {"zero", "aten.zero.default"},
});
// These take lists of tensors alone; of numbers they are other operators.
constexpr auto kOfLists = std::to_array<Row>({
    {"maximum", "aten.maximum.default"},
    {"minimum", "aten.minimum.default"},
});

}  // namespace

bool isOfEach(std::string_view name) {
  const auto has = [&](const auto& rows) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.each == name; });
  };
  return has(kRows) || has(kOfLists);
}

std::optional<ForeachOperator> findForeach(std::string_view name) {
  constexpr std::string_view kPrefix = "aten._foreach_";
  const size_t dot = name.rfind('.');
  if (!name.starts_with(kPrefix) || dot < kPrefix.size()) {
    return std::nullopt;
  }
  std::string_view op = name.substr(kPrefix.size(), dot - kPrefix.size());
  const bool inPlace = op.ends_with('_');
  op.remove_suffix(inPlace ? 1 : 0);
  const auto find = [&](const auto& rows) -> std::optional<ForeachOperator> {
    const auto* row =
        std::find_if(rows.data(), rows.data() + rows.size(), [&](const Row& r) { return r.name == op; });
    return row == rows.data() + rows.size() ? std::nullopt
                                            : std::optional(ForeachOperator{row->each, inPlace});
  };
  const std::string_view overload = name.substr(dot);
  const bool numbers = overload == ".Scalar" || overload == ".ScalarList";
  // A tensor of weights or factors holds one for each tensor of the lists.
  const bool takesNumbers = op == "lerp" || op == "addcmul" || op == "addcdiv";
  if ((takesNumbers && !numbers) || overload.ends_with("out")) {
    return std::nullopt;
  }
  const auto found = find(kRows);
  return found || overload != ".List" ? found : find(kOfLists);
}

}  // namespace kintsugi::passes
