// Failures on demand: tests see what a bug of ours costs at each place where one is caught.
//
// `faultPoint("drain")` fails once after `failAt("drain")`, as a check does: it throws InternalError, or
// aborts where failed checks abort. It is not counted as a failed check. The places are the string literals
// in the sources; a name that no place has never fires. Thread: any; a point that is not armed costs one
// relaxed load. Example: failAt("step"); compiled(x); → KTG0000, and the program's result is eager's.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace kintsugi {

// The empty name disarms. `after`: this many times it passes first.
void failAt(std::string name, int after = 0);
// Has the point that was armed been reached since?
bool hasFailed();

namespace detail {
extern std::atomic<bool> armed;
void maybeFail(std::string_view name);
}  // namespace detail

inline void faultPoint(std::string_view name) {
  if (detail::armed.load(std::memory_order_relaxed)) [[unlikely]] {
    detail::maybeFail(name);
  }
}

}  // namespace kintsugi
