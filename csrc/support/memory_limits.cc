#include "support/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>

namespace kintsugi {

namespace {

// The number in a file. A file that is not there, and one that says "max", limits nothing.
uint64_t numberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : UINT64_MAX;
}

// Of a group and all above it. In a namespace of its own a process may be told a path that its mount does not
// have: the group at the root is what limits it then.
uint64_t leastAlong(const std::string& root, std::string path, const char* file) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    least = std::min(least, numberIn(root + path + "/" + file));
    if (path.empty()) {
      return least;
    }
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool hasController(const std::string& controllers, const std::string& wanted) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == wanted) {
      return true;
    }
  }
  return false;
}

}  // namespace

uint64_t controlGroupLimit(const std::string& membership, const std::string& root) {
  uint64_t least = UINT64_MAX;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // "4:memory:/some/group"; "0::/group" is version 2
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") {
      path.clear();
    }
    if (controllers.empty()) {
      least = std::min(
          {least, leastAlong(root, path, "memory.max"), leastAlong(root + "/unified", path, "memory.max")});
    } else if (hasController(controllers, "memory")) {
      least = std::min(least, leastAlong(root + "/memory", path, "memory.limit_in_bytes"));
    }
  }
  return least;
}

uint64_t availableMemory() {
  uint64_t bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream file("/proc/self/cgroup");
  const std::string membership{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  bytes = std::min(bytes, controlGroupLimit(membership, "/sys/fs/cgroup"));
  for (const auto kind : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(kind, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      bytes = std::min<uint64_t>(bytes, limit.rlim_cur);
    }
  }
  return bytes;
}

}  // namespace kintsugi
