#include "codegen/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "codegen/kernel_cache.h"

namespace kintsugi::codegen {

namespace {

constexpr std::string_view kMagic = "KTKERN01";
constexpr std::string_view kSuffix = ".kernel";
constexpr std::string_view kDraftSuffix = ".tmp";
// A temporary file that has not changed for this long was left behind by a process that died.
constexpr time_t kDraftSeconds = 600;

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

std::string nameOf(const std::string& key) {
  char name[40];
  std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(hashOf(key)),
                static_cast<unsigned long long>(hashOf(key, 0x9e3779b97f4a7c15ull)));
  return name + std::string(kSuffix);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

bool isOurs(const struct stat& info) {
  return info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool endsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }

std::function<void(const std::string&)>& warning() {
  static auto* function = new std::function<void(const std::string&)>();
  return *function;
}

void warnOnce(const std::string& directory, const char* why) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true) && warning()) {
    warning()("the cache folder " + directory + " is not used: " + why +
              ". Compiled kernels are kept in memory only. Set KINTSUGI_CACHE_DIR to a folder that is yours "
              "alone, or KINTSUGI_DISK_CACHE_LIMIT=0.");
  }
}

bool readAll(int file, size_t size, std::string& out) {
  out.resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file, out.data() + done, size - done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    done += static_cast<size_t>(got);
  }
  return true;
}

bool writeAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return false;
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

struct Entry {
  timespec used;
  uint64_t size;
  std::string name;
  bool draft;
};

// The files of the cache, recognized by their names; drafts too. Other entries are ignored.
std::vector<Entry> entriesOf(int folder) {
  std::vector<Entry> entries;
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = own < 0 ? nullptr : fdopendir(own);
  if (list == nullptr) {
    if (own >= 0) ::close(own);
    return entries;
  }
  while (const dirent* next = readdir(list)) {
    const std::string_view name = next->d_name;
    struct stat info {};
    if ((!endsWith(name, kSuffix) && !endsWith(name, kDraftSuffix)) ||
        fstatat(folder, next->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||  // another process has removed it
        !S_ISREG(info.st_mode)) {
      continue;
    }
    entries.push_back(
        {info.st_mtim, static_cast<uint64_t>(info.st_size), std::string(name), endsWith(name, kDraftSuffix)});
  }
  closedir(list);
  return entries;
}

}  // namespace

void setDiskWarning(std::function<void(const std::string&)> function) { warning() = std::move(function); }

// Opens the folder if it belongs to the user alone; negative: there is no cache. `make`: creates a missing
// folder.
int DiskCache::open(bool make) const {
  if (directory_.empty()) {
    return -1;
  }
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  int number = ::open(directory_.c_str(), kFlags);
  if (number < 0 && errno == ENOENT && make) {
    const std::filesystem::path path(directory_);
    std::error_code ignored;
    const std::filesystem::path above = path.parent_path();
    std::filesystem::create_directories(above.parent_path(), ignored);
    mkdir(above.c_str(), S_IRWXU);
    mkdir(directory_.c_str(), S_IRWXU);
    number = ::open(directory_.c_str(), kFlags);
  }
  Descriptor folder(number);
  if (!folder) {
    if (errno != ENOENT || make) {
      warnOnce(directory_, std::strerror(errno));
    }
    return -1;
  }
  struct stat info {};
  if (fstat(folder.get(), &info) != 0 || info.st_uid != geteuid()) {
    warnOnce(directory_, "it belongs to somebody else");
    return -1;
  }
  if (!isOurs(info)) {
    warnOnce(directory_, "others may write it (chmod go-w makes it yours alone)");
    return -1;
  }
  return folder.release();
}

std::optional<std::string> DiskCache::read(const std::string& key, bool& bad) const {
  bad = false;
  const Descriptor folder(open(false));
  if (!folder) {
    return std::nullopt;
  }
  // If the name belongs to a pipe, a folder or a link, the open does not wait and does not follow it.
  const std::string name = nameOf(key);
  const Descriptor file(openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    bad = errno != ENOENT;
    return std::nullopt;
  }
  bad = true;
  struct stat info {};
  std::string text;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || !isOurs(info) ||
      static_cast<uint64_t>(info.st_size) > limit_ ||
      !readAll(file.get(), static_cast<size_t>(info.st_size), text)) {
    return std::nullopt;
  }
  std::optional<std::string> object = objectIn(text, key);
  bad = !object;
  if (object) {
    futimens(file.get(), nullptr);  // marks it as used just now
  }
  return object;
}

void DiskCache::write(const std::string& key, const std::string& object) const {
  const Descriptor folder(open(true));
  if (!folder) {
    return;
  }
  std::string body;
  put(body, key.size());
  body += key + object;
  std::string head(kMagic);
  put(head, hashOf(body));
  const std::string name = nameOf(key);
  // Processes in different containers may have the same process id.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string draft =
      name + "." + std::to_string(getpid()) + "." + std::to_string(now.tv_nsec) + std::string(kDraftSuffix);
  Descriptor file(
      openat(folder.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) {
    return;  // read-only or full: the kernel is still in memory
  }
  const bool written = writeAll(file.get(), head) && writeAll(file.get(), body);
  if (!file.close() || !written || renameat(folder.get(), draft.c_str(), folder.get(), name.c_str()) != 0) {
    unlinkat(folder.get(), draft.c_str(), 0);
  }
  trim(folder.get());
}

void DiskCache::trim(int folder) const {
  std::vector<Entry> entries = entriesOf(folder);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t total = 0;
  std::erase_if(entries, [&](const Entry& entry) {
    const bool left = entry.draft && entry.used.tv_sec + kDraftSeconds < now.tv_sec;
    if (left) unlinkat(folder, entry.name.c_str(), 0);
    total += left ? 0 : entry.size;
    return left;
  });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Entry& entry : entries) {
    if (total <= limit_) {
      break;
    }
    if (entry.draft) {
      continue;  // another process is writing it
    }
    unlinkat(folder, entry.name.c_str(), 0);
    total -= entry.size;
  }
}

void DiskCache::clear() const {
  const Descriptor folder(open(false));
  if (!folder) {
    return;
  }
  for (const Entry& entry : entriesOf(folder.get())) {
    unlinkat(folder.get(), entry.name.c_str(), 0);
  }
}

}  // namespace kintsugi::codegen
