// Names of traits, for tests and reports: "fresh" for Trait::kFresh. Constants; any thread, no GIL.
#pragma once

#include <string_view>
#include <vector>

#include "ops/operator.h"

namespace kintsugi::ops {

std::string_view nameOf(Trait trait);
// Of an overload, those of its packet included.
std::vector<std::string_view> traitNamesOf(std::string_view name);

}  // namespace kintsugi::ops
