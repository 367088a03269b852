// How much memory a process may have: the least of what the machine has, what control groups (version 1 and
// 2, with a namespace of their own or without) allow, and what `ulimit -v` and `ulimit -d` leave.
//
// Ownership: none. Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace kintsugi {

// Asks the system.
uint64_t availableMemory();

// The least limit of the control groups named in `membership` (the text of /proc/self/cgroup), and of those
// above them, whose files are below `root` (/sys/fs/cgroup); UINT64_MAX: none limits memory.
uint64_t controlGroupLimit(const std::string& membership, const std::string& root);

}  // namespace kintsugi
