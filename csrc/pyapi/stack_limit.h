// Protects against running out of C stack: each interpreted Python call is a few C calls deep, so a program
// that raises the recursion limit far beyond its default could overflow the C stack before it meets the
// limit.
//
// Threads: each thread's limit is found once, at its first check. The GIL is needed (it raises
// RecursionError).
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// The lowest address that interpreted frames may reach; 0: not known yet.
extern thread_local uintptr_t stackLimit [[gnu::tls_model("initial-exec")]];

// Slow path of checkStackLimit(): finds the limit of a new thread, or raises.
bool stackLimitReached(uintptr_t here);

// False: the C stack is nearly used up, RecursionError is pending.
inline bool checkStackLimit() {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return (stackLimit != 0 && here > stackLimit) || !stackLimitReached(here);
}

// The address of the thread's C stack below which CPython itself calls nothing any more. From 3.14 on it
// finds that when the thread begins, and a raised limit of the process does not move it. 0: there is none.
uintptr_t interpreterStackFloor();

// True if less than half of the C stack is left. Code that needs more of it than CPython should end then.
bool stackIsScarce();

}  // namespace kintsugi::pyapi
