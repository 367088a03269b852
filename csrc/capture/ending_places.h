// The instructions of the program at which runs were left because a write was about to end an object
// (ending_writes.h). A recording writes steps for them.
//
// Ownership: the callable's; holds the code objects. Threads: the GIL is needed.
// Example: if (places.add(code, unit)) recordAgain();
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "pyapi/ref.h"

namespace kintsugi::capture {

class EndingPlaces {
 public:
  // False: it is there already.
  bool add(PyObject* code, int32_t unit) {
    if (contains(code, unit)) return false;
    places_.emplace_back(pyapi::newRef(code), unit);
    return true;
  }
  bool contains(PyObject* code, int32_t unit) const {
    return std::ranges::any_of(
        places_, [&](const auto& place) { return place.first.get() == code && place.second == unit; });
  }
  void clear() { places_.clear(); }

 private:
  std::vector<std::pair<pyapi::Ref<>, int32_t>> places_;
};

}  // namespace kintsugi::capture
