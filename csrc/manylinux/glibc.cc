// Functions of the C library that are newer than the one that wheels have to run with, written with what is
// older.
//
// Linked into wheels alone, and hidden there (scripts/link_stubs.py makes the linker ask for them). With the
// C library's own headers of this machine, so that each has the type that its callers were compiled with.
//
// Ownership: nothing is kept.
// Threads/GIL: as the C library's functions.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <cstdint>

extern "C" {

// What stat(2) and its family were until glibc 2.33: functions of a version of the structure, called by
// inline functions.
int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstat(int version, int file, struct stat* out);
int __fxstatat(int version, int folder, const char* path, struct stat* out, int flags);
int __xmknod(int version, const char* path, mode_t mode, dev_t* device);

// The C++ library asks whether a process has one thread, and leaves locks out then. "No" is always right.
char __libc_single_threaded = 0;
}

namespace {

#if defined(__x86_64__)
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif
constexpr int kMknodVersion = 0;
constexpr long kNanoseconds = 1'000'000'000;  // of a second

}  // namespace

extern "C" {

int stat(const char* path, struct stat* out) noexcept { return __xstat(kStatVersion, path, out); }
int lstat(const char* path, struct stat* out) noexcept { return __lxstat(kStatVersion, path, out); }
int fstat(int file, struct stat* out) noexcept { return __fxstat(kStatVersion, file, out); }
int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  return __fxstatat(kStatVersion, folder, path, out, flags);
}
int mknod(const char* path, mode_t mode, dev_t device) noexcept {
  return __xmknod(kMknodVersion, path, mode, &device);
}

// On machines of 64 bits there is one structure.
static_assert(sizeof(struct stat) == sizeof(struct stat64));
int stat64(const char* path, struct stat64* out) noexcept {
  return __xstat(kStatVersion, path, reinterpret_cast<struct stat*>(out));
}
int lstat64(const char* path, struct stat64* out) noexcept {
  return __lxstat(kStatVersion, path, reinterpret_cast<struct stat*>(out));
}
int fstat64(int file, struct stat64* out) noexcept {
  return __fxstat(kStatVersion, file, reinterpret_cast<struct stat*>(out));
}

// Sizes beyond four GiB wrap around in the older structure. LLVM writes them into statistics, for which
// nothing here asks.
struct mallinfo2 mallinfo2() noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
  struct mallinfo2 result = {};
  result.arena = static_cast<unsigned>(old.arena);
  result.hblkhd = static_cast<unsigned>(old.hblkhd);
  result.uordblks = static_cast<unsigned>(old.uordblks);
  result.fordblks = static_cast<unsigned>(old.fordblks);
  return result;
}

// The kernel's random numbers, as glibc's function takes them when it starts. It can't fail, so this one
// can't either.
uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}

// A wait until a time of the steady clock. The older function knows the wall clock alone, so a step of that
// clock makes one wait shorter or longer; the C++ library looks at the steady clock when it has ended, and
// waits for the rest.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, until);
  if (clock != CLOCK_MONOTONIC) return EINVAL;
  struct timespec steady, wall;
  if (clock_gettime(CLOCK_MONOTONIC, &steady) != 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0)
    return EINVAL;
  wall.tv_sec += until->tv_sec - steady.tv_sec;
  wall.tv_nsec += until->tv_nsec - steady.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += kNanoseconds;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= kNanoseconds) {
    wall.tv_nsec -= kNanoseconds;
    ++wall.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &wall);
}
}
