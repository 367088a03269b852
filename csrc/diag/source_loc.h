// SourceLoc: a place in the user's Python program.
//
// Ownership: owns its strings; a plain value.
// Threads/GIL: no shared state, no GIL.
// Invalidation: never; it keeps no reference to code objects.
#pragma once

#include <string>

namespace kintsugi::diag {

struct SourceLoc {
  std::string file;
  int line = 0;
  std::string function;

  bool known() const { return !file.empty(); }
  // `f.py:44 (forward)`, or the empty string for an unknown place.
  std::string format() const {
    if (!known()) {
      return "";
    }
    std::string out = file + ":" + std::to_string(line);
    if (!function.empty()) {
      out += " (" + function + ")";
    }
    return out;
  }
  bool operator==(const SourceLoc&) const = default;
};

}  // namespace kintsugi::diag
