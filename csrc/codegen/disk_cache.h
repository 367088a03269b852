// Inside codegen only: object files on disk, safe with several processes.
//
// A file is written under another name and then renamed, so that nobody reads half of one. It starts with a
// magic word, the length of the key, the key, and a checksum of all that follows; a reader that finds
// anything else treats the file as missing and says so. Beyond the limit the files used least recently are
// removed, drafts that a process left behind among them. Nothing in a file is executed before its checksum
// and key fit.
//
// A checksum is no signature: whoever may write here decides what code runs. So the folder is made with mode
// 0700, and used only while it belongs to the user and nobody else may write it; so is each file. Where that
// is not so, nothing is read or written, and the function of setDiskWarning() is told why, once.
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

  // `bad`: there is something of that name, but not a good file.
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
