// Inside codegen only: object files on disk, safe with several processes.
//
// A file is written under another name and then renamed, so that nobody reads half of it. It starts with a
// magic word, the length of the key, the key, and a checksum of all that follows. If a reader finds anything
// else, it treats the file as missing and says so. Beyond the limit, the least recently used files are
// removed, and so are drafts that a process left behind. Nothing in a file is executed before its checksum
// and key were found right.
//
// A checksum is no signature: whoever may write here decides what code runs. So the folder is made with mode
// 0700. It is used only while it belongs to the user and nobody else may write to it; the same holds for each
// file. Otherwise nothing is read or written, and the function of setDiskWarning() is told the reason, once.
//
// Ownership: none. Threads: any. No GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kintsugi::codegen {

class DiskCache {
 public:
  DiskCache() = default;
  DiskCache(std::string directory, uint64_t limit) : directory_(std::move(directory)), limit_(limit) {}

  // `bad`: there is something of that name, but it is not a good file.
  std::optional<std::string> read(const std::string& key, bool& bad) const;
  void write(const std::string& key, const std::string& object) const;
  void clear() const;

 private:
  int open(bool make) const;
  void trim(int folder) const;

  std::string directory_;  // empty: no cache
  uint64_t limit_ = 0;
};

}  // namespace kintsugi::codegen
