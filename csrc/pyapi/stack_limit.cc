#include "pyapi/stack_limit.h"

#include <pthread.h>

namespace kintsugi::pyapi {

[[gnu::tls_model("initial-exec")]] thread_local uintptr_t stackLimit = 0;

namespace {

// Room for C code above the last interpreted frame: regular expressions, repr(), torch's kernels.
constexpr uintptr_t kReserve = 256 * 1024;

thread_local uintptr_t stackMiddle = 1;

uintptr_t findStackLimit() {
  pthread_attr_t attributes;
  void* lowest = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return 1;
  }
  const bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  if (!known) {
    return 1;
  }
  stackMiddle = reinterpret_cast<uintptr_t>(lowest) + size / 2;
  const uintptr_t reserve = size > 4 * kReserve ? kReserve : size / 4;
  return reinterpret_cast<uintptr_t>(lowest) + reserve;
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
