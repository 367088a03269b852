// A range that torch.profiler shows, as torch.profiler.record_function makes them.
//
// Threads: the calling one. GIL: not needed. Ownership: ends the range when it goes out of scope.
#pragma once

#include <memory>
#include <string>

namespace kintsugi::torchapi {

// True if a profiler watches this thread. Cheap enough to check at every call.
bool profilerActive();

class ProfilerRange {
 public:
  ProfilerRange();
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  void begin(const std::string& name);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::torchapi
