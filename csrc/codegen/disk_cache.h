// Inside codegen only: object files on disk, safe with several processes.
//
// A file is written under another name and then renamed, so that nobody reads half of one. It starts with a
// magic word, the length of the key, the key, and a checksum of all that follows; a reader that finds
// anything else treats the file as missing and says so. Beyond the limit the files used least recently are
// removed. Nothing in a file is executed before its checksum and key fit. Ownership: none. Threads: any. No
// GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kintsugi::codegen {

class DiskCache {
 public:
  DiskCache() = default;
  DiskCache(std::string directory, uint64_t limit) : directory_(std::move(directory)), limit_(limit) {}

  // `bad`: there is a file, but not a good one.
  std::optional<std::string> read(const std::string& key, bool& bad) const;
  void write(const std::string& key, const std::string& object) const;
  void clear() const;

 private:
  std::string pathOf(const std::string& key) const;
  void trim() const;

  std::string directory_;  // empty: no cache
  uint64_t limit_ = 0;
};

}  // namespace kintsugi::codegen
