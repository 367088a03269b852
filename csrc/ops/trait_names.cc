#include "ops/trait_names.h"

namespace kintsugi::ops {

std::string_view nameOf(Trait trait) {
  switch (trait) {
    case Trait::kFresh:
      return "fresh";
    case Trait::kPure:
      return "pure";
    case Trait::kMayCopy:
      return "may_copy";
    case Trait::kByForm:
      return "by_form";
    case Trait::kStoresOnly:
      return "stores_only";
    case Trait::kMasked:
      return "masked";
    case Trait::kForgetsResult:
      return "forgets_result";
    case Trait::kSizesOfData:
      return "sizes_of_data";
    case Trait::kSizesOfMasks:
      return "sizes_of_masks";
    case Trait::kRankOfSizes:
      return "rank_of_sizes";
    case Trait::kRankOfNumbers:
      return "rank_of_numbers";
    case Trait::kWritesUnmarked:
      return "writes_unmarked";
    case Trait::kReplacesTensor:
      return "replaces_tensor";
    case Trait::kMakesEmpty:
      return "makes_empty";
    case Trait::kForwardMode:
      return "forward_mode";
    case Trait::kRandom:
      return "random";
  }
  return {};
}

std::vector<std::string_view> traitNamesOf(std::string_view name) {
  std::vector<std::string_view> names;
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    const auto trait = static_cast<Trait>(bit);
    if (!nameOf(trait).empty() && has(name, trait)) names.push_back(nameOf(trait));
  }
  return names;
}

}  // namespace kintsugi::ops
