#include "codegen/disk_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace kintsugi::codegen {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "KTKERN01";
constexpr std::string_view kSuffix = ".kernel";

uint64_t hashOf(std::string_view text, uint64_t seed = 14695981039346656037ull) {
  uint64_t hash = seed;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return hash ^ (hash >> 29);
}

void put(std::string& out, uint64_t number) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  out.append(bytes, sizeof(number));
}

bool take(std::string_view& in, uint64_t& number) {
  if (in.size() < sizeof(number)) {
    return false;
  }
  std::memcpy(&number, in.data(), sizeof(number));
  in.remove_prefix(sizeof(number));
  return true;
}

std::optional<std::string> objectIn(std::string_view file, const std::string& key) {
  uint64_t checksum = 0, keyLength = 0;
  if (!file.starts_with(kMagic)) {
    return std::nullopt;
  }
  file.remove_prefix(kMagic.size());
  if (!take(file, checksum) || hashOf(file) != checksum || !take(file, keyLength) ||
      file.size() < keyLength || file.substr(0, keyLength) != key) {
    return std::nullopt;
  }
  return std::string(file.substr(keyLength));
}

}  // namespace

std::string DiskCache::pathOf(const std::string& key) const {
  char name[40];
  std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(hashOf(key)),
                static_cast<unsigned long long>(hashOf(key, 0x9e3779b97f4a7c15ull)));
  return directory_ + "/" + name + std::string(kSuffix);
}

std::optional<std::string> DiskCache::read(const std::string& key, bool& bad) const {
  bad = false;
  if (directory_.empty()) {
    return std::nullopt;
  }
  const std::string path = pathOf(key);
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return std::nullopt;
  }
  const std::string file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::optional<std::string> object = objectIn(file, key);
  bad = !object;
  if (object) {
    std::error_code ignored;
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // used just now
  }
  return object;
}

void DiskCache::write(const std::string& key, const std::string& object) const {
  if (directory_.empty()) {
    return;
  }
  std::error_code error;
  fs::create_directories(directory_, error);
  std::string body;
  put(body, key.size());
  body += key + object;
  std::string head(kMagic);
  put(head, hashOf(body));
  const std::string path = pathOf(key);
  const std::string draft = path + "." + std::to_string(getpid()) + ".tmp";
  {
    std::ofstream out(draft, std::ios::binary);
    out << head << body;
    if (!out.flush()) {
      out.close();
      fs::remove(draft, error);
      return;
    }
  }
  fs::rename(draft, path, error);
  if (error) {
    fs::remove(draft, error);
  }
  trim();
}

void DiskCache::trim() const {
  struct File {
    fs::file_time_type used;
    uint64_t size;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    std::error_code gone;  // another process may remove it meanwhile
    const uint64_t size = entry.file_size(gone);
    const auto used = entry.last_write_time(gone);
    if (!gone && entry.path().extension() == kSuffix) {
      files.push_back({used, size, entry.path()});
      total += size;
    }
  }
  if (total <= limit_) {
    return;
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= limit_) {
      break;
    }
    fs::remove(file.path, error);
    total -= file.size;
  }
}

void DiskCache::clear() const {
  std::error_code error;
  if (directory_.empty()) {
    return;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().extension() == kSuffix) {
      std::error_code ignored;
      fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace kintsugi::codegen
