#include "pyapi/stack_limit.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

// The top of the first thread's stack; of glibc's loader.
extern "C" void* __libc_stack_end;

namespace kintsugi::pyapi {

[[gnu::tls_model("initial-exec")]] thread_local uintptr_t stackLimit = 0;

namespace {

// Room for C code above the last interpreted frame: regular expressions, repr(), torch's kernels.
constexpr uintptr_t kReserve = 256 * 1024;

thread_local uintptr_t stackMiddle = 1;

struct Stack {
  uintptr_t lowest;
  size_t size;
};

// The stack of the first thread grows down to its limit. For that thread pthread_getattr_np() reads all of
// /proc/self/maps, which takes about as long as recording a small function; it looks whether another mapping
// is nearer. Linux leaves at least 128 MB free below the stack, so no mapping is nearer than a small limit.
// (The only thread of a forked process may be on another stack.)
bool findFirstStack(Stack& stack) {
  constexpr rlim_t kFreeBelow = 64 << 20;
  rlimit limit{};
  if (getpid() != gettid() || getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur > kFreeBelow) {
    return false;
  }
  const auto top = reinterpret_cast<uintptr_t>(__libc_stack_end);
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  stack.size = limit.rlim_cur;
  stack.lowest = top - stack.size;
  return stack.lowest < here && here < top;
}

bool findStack(Stack& stack) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return false;
  }
  void* lowest = nullptr;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &stack.size) == 0;
  pthread_attr_destroy(&attributes);
  stack.lowest = reinterpret_cast<uintptr_t>(lowest);
  return known;
}

uintptr_t findStackLimit() {
  Stack stack{};
  if (!findFirstStack(stack) && !findStack(stack)) {
    return 1;
  }
  const uintptr_t floor = interpreterStackFloor();
  if (floor > stack.lowest && floor < stack.lowest + stack.size) {
    stack.size -= floor - stack.lowest;
    stack.lowest = floor;
  }
  stackMiddle = stack.lowest + stack.size / 2;
  return stack.lowest + (stack.size > 4 * kReserve ? kReserve : stack.size / 4);
}

}  // namespace

bool stackLimitReached(uintptr_t here) {
  if (stackLimit == 0) {
    stackLimit = findStackLimit();
  }
  if (here > stackLimit) {
    return false;
  }
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
  return true;
}

bool stackIsScarce() {
  if (stackLimit == 0) {
    stackLimit = findStackLimit();
  }
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < stackMiddle;
}

}  // namespace kintsugi::pyapi
