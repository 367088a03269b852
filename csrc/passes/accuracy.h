// The bounds of passes/accuracy.def as a table.
#pragma once

#include <array>
#include <string_view>

namespace kintsugi::passes {

struct Accuracy {
  std::string_view name;      // aten.exp.default
  std::string_view argument;  // besides the tensor; empty: none
  double ulp;                 // of the result
  double ofArgument;          // ... of x
  double least;               // absolute
};

inline constexpr auto kAccuracies = std::to_array<Accuracy>({
#define KINTSUGI_ACCURACY(name, argument, ulp, ofArgument, least) {name, argument, ulp, ofArgument, least},
#include "passes/accuracy.def"
});

}  // namespace kintsugi::passes
