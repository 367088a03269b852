// Looks a pass up by its name in one of the tables of passes: of traces, of segments, of tensor graphs.
//
//   return findNamed<SegmentPass>(kPasses, "expand-einsums");
//
// Constants; any thread; no GIL.
#pragma once

#include <span>
#include <string_view>

namespace kintsugi::passes {

// nullptr: there is no row of this name.
template <typename Row>
const Row* findNamed(std::span<const Row> rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace kintsugi::passes
