#include "support/host_machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace kintsugi {

namespace {

VectorLevel hostLevel() {
#if defined(__aarch64__)
  return VectorLevel::kNeon;
#else
  // Of another architecture this is the shape of vectors alone: LLVM makes of them what there is.
  VectorLevel level = VectorLevel::kSse4;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) {
    level = VectorLevel::kAvx512;
  } else if (__builtin_cpu_supports("x86-64-v3")) {
    level = VectorLevel::kAvx2;
  }
#endif
  return level;
#endif
}

std::string textIn(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return text;
}

// "32K", "1024K", "1M"; 0: no such text.
size_t bytesOf(const std::string& text) {
  size_t number = 0, at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && number < (size_t{1} << 40); ++at) {
    number = 10 * number + static_cast<size_t>(text[at] - '0');
  }
  const std::string unit = text.substr(at);
  return unit.empty() ? number : unit == "K" ? number << 10 : unit == "M" ? number << 20 : 0;
}

// A number that a cache may have.
void take(size_t& field, size_t value, size_t least, size_t most) {
  if (value >= least && value <= most) {
    field = value;
  }
}

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

void takeL1(Machine& machine, size_t bytes) { take(machine.l1Bytes, bytes, 4 * kKiB, kMiB); }
void takeL2(Machine& machine, size_t bytes) { take(machine.l2Bytes, bytes, 64 * kKiB, 256 * kMiB); }
void takeL3(Machine& machine, size_t bytes) { take(machine.l3Bytes, bytes, 256 * kKiB, 4096 * kMiB); }
void takeLine(Machine& machine, size_t bytes) {
  if ((bytes & (bytes - 1)) == 0) {
    take(machine.lineBytes, bytes, 32, 256);
  }
}

size_t asked(int name) { return static_cast<size_t>(std::max(0L, sysconf(name))); }

}  // namespace

void readCaches(const std::string& folder, Machine& machine) {
  for (int at = 0; at < 8; ++at) {
    const std::string cache = folder + "/index" + std::to_string(at);
    const std::string level = textIn(cache + "/level"), type = textIn(cache + "/type");
    const size_t bytes = bytesOf(textIn(cache + "/size"));
    if (type == "Instruction") {
      continue;
    }
    if (level == "1") {
      takeL1(machine, bytes);
      take(machine.l1Ways, bytesOf(textIn(cache + "/ways_of_associativity")), 1, 64);
      takeLine(machine, bytesOf(textIn(cache + "/coherency_line_size")));
    } else if (level == "2") {
      takeL2(machine, bytes);
    } else if (level == "3") {
      takeL3(machine, bytes);
    }
  }
}

const Machine& hostMachine() {
  static const Machine found = [] {
    Machine machine;
    machine.level = hostLevel();
    takeL1(machine, asked(_SC_LEVEL1_DCACHE_SIZE));
    take(machine.l1Ways, asked(_SC_LEVEL1_DCACHE_ASSOC), 1, 64);
    takeLine(machine, asked(_SC_LEVEL1_DCACHE_LINESIZE));
    takeL2(machine, asked(_SC_LEVEL2_CACHE_SIZE));
    takeL3(machine, asked(_SC_LEVEL3_CACHE_SIZE));
    readCaches("/sys/devices/system/cpu/cpu0/cache", machine);
    machine.pageBytes = std::max<size_t>(4096, asked(_SC_PAGESIZE));
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    machine.cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                        ? static_cast<unsigned>(CPU_COUNT(&allowed))
                        : static_cast<unsigned>(asked(_SC_NPROCESSORS_ONLN));
    machine.cores = std::max(1U, machine.cores);
    return machine;
  }();
  return found;
}

}  // namespace kintsugi
