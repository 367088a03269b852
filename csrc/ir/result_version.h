// ResultVersion: what a version counter says of a result of a segment, where native code would count less.
// passes/result_versions.h finds it, runtime/native_runner.h carries it out.
#pragma once

#include <cstdint>

namespace kintsugi::ir {

struct ResultVersion {
  uint32_t output = 0;
  bool isOwn = false;   // of a tensor that the segment has made, or of a view of one; else a view of an input
  uint32_t writes = 0;  // to it; to the input, behind the view
};

}  // namespace kintsugi::ir
