// contain(): where a failed check stops. The one place that catches C++ exceptions of ours.
//
// In a release build a failed check throws InternalError (support/check.h). Each boundary behind which the
// program goes on without us runs its part inside contain(), and says KTG0000 when that failed:
//
//   if (const auto failure = contain([&] { install(trace); })) note(Code::KTG0000, failure->text);
//
// Boundaries are the recorder's entries, a call's look-up, recording and replay, the thread that compiles, a
// run of native code, and the bindings. Nobody else catches InternalError or std::exception, so no failed
// check can pass for a refusal or for an exception of the program (scripts/check_layers.py looks).
//
// Ownership: values. Threads: any; the GIL is not needed. Invalidation: none.
#pragma once

#include <exception>
#include <optional>
#include <string>

namespace kintsugi {

// What contain() has caught.
struct CaughtFailure {
  std::string text;      // what(), with the place of the check and the IR at hand
  bool isCheck = false;  // a failed check; else another exception, such as one of the allocator
};

[[gnu::cold]] CaughtFailure describeCaught(const std::exception& error);

// Runs `body`. Nothing: it came to its end. Not for all that is thrown: a thread that CPython ends, because
// the process ends, unwinds by an exception that must not be caught.
template <typename Body>
[[nodiscard]] std::optional<CaughtFailure> contain(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return describeCaught(error);
  }
  return std::nullopt;
}

}  // namespace kintsugi
