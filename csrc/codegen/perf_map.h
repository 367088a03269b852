// Names of kernels for Linux's `perf`.
//
// Idea: a sampling profiler sees addresses in machine code that no file on disk describes. With
// KINTSUGI_PERF_MAP set, each kernel that is loaded is a line of /tmp/perf-PID.map, where perf looks for such
// names:
//
//   KINTSUGI_PERF_MAP=1 perf record -g python serve.py && perf report
//
// Threads: any; each line is one write. Nothing is removed when a kernel goes.
#pragma once

#include <string>

namespace kintsugi::codegen {

// `object`: the file that `code` was loaded from; `structure`: Kernel::key(), whose lines become one.
void nameForPerf(const void* code, const std::string& object, const std::string& structure);

}  // namespace kintsugi::codegen
