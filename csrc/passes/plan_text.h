// The text form of what a native plan does with its slots (passes/plan_verifier.h):
//
//   plan slots=6 inputs=2 steady=0 {
//     written [1]
//     alias 2 3
//     step reads=[0, 1] writes=[2] makes=[2 place=0]
//     step reads=[2] writes=[3] makes=[3 over=2] drops=[2]
//     outputs [3, none]
//   }
//
// What is printed reads back as the same. Plain functions, no state, no GIL.
#pragma once

#include <string>
#include <string_view>

#include "diag/diagnostic.h"
#include "passes/plan_verifier.h"

namespace kintsugi::passes {

std::string print(const PlanFlow& plan);
diag::Result<PlanFlow> parsePlan(std::string_view text);

}  // namespace kintsugi::passes
