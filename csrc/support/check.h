// KINTSUGI_CHECK: the assertion for bugs of ours, kept in release builds.
//
// A failed check in a debug build (KINTSUGI_DEBUG defined) prints the place, the condition, the message and
// the dumps of all active CheckContexts (the IR at hand), then aborts. In a release build it throws
// InternalError, which contain() alone catches (support/contain.h): at the boundaries listed there it becomes
// diagnostic KTG0000, and the call runs in eager mode. It never crosses a binding or the frame hook. What the
// user's program does wrong, or what we can't capture, is not a failed check: see `diag::Result`.
//
// Example: KINTSUGI_CHECK(slot < slots.size(), "slot ", slot, " of a frame with ", slots.size());
//
// Ownership: a CheckContext borrows the object it dumps and must not outlive it.
// Threads/GIL: contexts are per thread; nothing here touches Python.
// Invalidation: a CheckContext unregisters itself when it goes out of scope.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace kintsugi {

// A failed check of a release build. what() holds file, line, condition, message and the context dumps.
class InternalError : public std::runtime_error {
 public:
  explicit InternalError(const std::string& text) : std::runtime_error(text) {}
};

// While one is alive on this thread, a failed check adds what `dump` writes about `object` to its message.
class CheckContext {
 public:
  using Dump = void (*)(const void* object, std::string& out);

  CheckContext(const void* object, Dump dump);
  ~CheckContext();
  CheckContext(const CheckContext&) = delete;
  CheckContext& operator=(const CheckContext&) = delete;

  // The text of every active context of this thread, innermost first.
  static std::string dumpAll();

 private:
  const void* object_;
  Dump dump_;
  CheckContext* outer_;
};

// Aborts or throws, as the head of this file says.
[[noreturn]] void checkFailed(const char* file, int line, const char* condition, const std::string& message);
// The same for a failure that a test has asked for (support/fault.h), which is not counted as a bug.
[[noreturn]] void failAsAsked(const std::string& text);

// Streams its arguments one after the other; the macro's message needs no format string.
template <typename... Parts>
[[gnu::cold, gnu::noinline]] std::string checkMessage(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// The other layers may spell these names with or without the layer's name.
namespace support = ::kintsugi;

}  // namespace kintsugi

#define KINTSUGI_CHECK(condition, ...)                                                                \
  do {                                                                                                \
    if (!(condition)) [[unlikely]] {                                                                  \
      ::kintsugi::checkFailed(__FILE__, __LINE__, #condition, ::kintsugi::checkMessage(__VA_ARGS__)); \
    }                                                                                                 \
  } while (false)

// Marks code that can't be reached; unlike __builtin_unreachable it is checked in every build.
#define KINTSUGI_UNREACHABLE(...) \
  ::kintsugi::checkFailed(__FILE__, __LINE__, "unreachable", ::kintsugi::checkMessage(__VA_ARGS__))

// A check that is too slow for release builds.
#ifdef KINTSUGI_DEBUG
#define KINTSUGI_DCHECK(condition, ...) KINTSUGI_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#else
#define KINTSUGI_DCHECK(condition, ...) \
  do {                                  \
  } while (false && (condition))
#endif
