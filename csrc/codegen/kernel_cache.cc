#include "codegen/kernel_cache.h"

#include <llvm/IR/LLVMContext.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "codegen/disk_cache.h"
#include "codegen/emit_kernel.h"
#include "codegen/object_code.h"
#include "codegen/perf_map.h"
#include "codegen/plan_kernel.h"
#include "support/check.h"
#include "support/fault.h"

namespace kintsugi::codegen {

namespace {

// A kernel takes a few pages of memory. This is far more than a process uses at a time, but programs may come
// and go.
constexpr size_t kMostKernels = 2048;
constexpr const char* kSymbol = "kintsugi_kernel";

// Never destroyed: machine code may run while the process exits.
class Cache {
 public:
  static Cache& instance() {
    static auto* cache = new Cache();
    return *cache;
  }

  std::shared_ptr<const CompiledKernel> get(const passes::Kernel& kernel, bool contract, unsigned tiles,
                                            std::string& reason) {
    std::lock_guard lock(mutex_);
    const Target& machine = target();
    const ProductTile tile = tileFor(kernel, machine, tiles != 0);
    std::string structure = contract ? "contract " : "";
    if (kernel.product || kernel.attention) {
      structure += "tile=" + std::to_string(tile.rows) + "x" + std::to_string(tile.vectors) + " ";
    }
    structure += kernel.key();
    const std::string name = targetKey(machine) + " " + structure;
    const auto found = kernels_.find(name);
    if (found != kernels_.end()) {
      ++counters_.reused;
      found->second.used = ++uses_;
      reason = found->second.reason;
      return found->second.kernel;
    }
    if (kernels_.size() >= limit_) {
      dropIdle();
    }
    Entry entry;
    entry.used = ++uses_;
    const auto start = std::chrono::steady_clock::now();
    entry.kernel = make(kernel, structure, {machine, tile, contract}, entry);
    counters_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    reason = entry.reason;
    return kernels_.emplace(name, std::move(entry)).first->second.kernel;
  }

  // Choices have a lock of their own, so that a running program does not wait for a compilation.
  std::optional<std::string> recall(const std::string& question) {
    const std::string key = "choice " + describe() + "\n" + question;
    std::lock_guard lock(choiceMutex_);
    choiceKeys_.insert_or_assign(question, key);
    const auto found = choices_.find(question);
    if (found != choices_.end()) {
      return found->second;
    }
    bool bad = false;
    std::optional<std::string> choice = choiceDisk_.read(key, bad);
    if (choice) {
      choices_.emplace(question, *choice);
    }
    return choice;
  }

  void remember(const std::string& question, const std::string& choice) {
    std::lock_guard lock(choiceMutex_);
    choices_.insert_or_assign(question, choice);
    if (const auto key = choiceKeys_.find(question); key != choiceKeys_.end()) {
      choiceDisk_.write(key->second, choice);
    }
  }

  void setDisk(const std::string& directory, uint64_t limit) {
    std::lock_guard lock(mutex_);
    std::lock_guard choices(choiceMutex_);
    disk_ = choiceDisk_ = DiskCache(directory, limit);
  }

  CacheCounters counters() {
    std::lock_guard lock(mutex_);
    CacheCounters out = counters_;
    out.kernels = kernels_.size();
    return out;
  }

  void setLimit(size_t limit) {
    std::lock_guard lock(mutex_);
    limit_ = limit;
  }

  void clear(bool disk) {
    std::lock_guard lock(mutex_);
    std::lock_guard choices(choiceMutex_);
    kernels_.clear();
    choices_.clear();
    choiceKeys_.clear();
    counters_.bytes = 0;
    if (disk) {
      disk_.clear();
    }
  }

  std::string describe() {
    std::lock_guard lock(mutex_);
    return compilerFor(target()).key();
  }

  void lock() {
    mutex_.lock();
    choiceMutex_.lock();
    ObjectCompiler::prepareFork();
  }
  void unlock() {
    ObjectCompiler::afterFork();
    choiceMutex_.unlock();
    mutex_.unlock();
  }

 private:
  struct Entry {
    std::shared_ptr<const CompiledKernel> kernel;  // null: the kernel can't be compiled, for this reason
    std::string reason;
    uint64_t bytes = 0;
    uint64_t used = 0;  // the number of the request that used it last
  };

  // Evicts the least recently used half of the kernels that no plan holds. (They stay on disk.)
  void dropIdle() {
    std::vector<uint64_t> idle;
    for (const auto& [structure, entry] : kernels_) {
      if (entry.kernel.use_count() <= 1) {
        idle.push_back(entry.used);
      }
    }
    const auto middle = idle.begin() + static_cast<std::ptrdiff_t>(idle.size() / 2);
    if (middle == idle.end()) {
      return;
    }
    std::nth_element(idle.begin(), middle, idle.end());
    const uint64_t last = *middle;
    std::erase_if(kernels_, [&](const auto& item) {
      const Entry& entry = item.second;
      const bool goes = entry.used <= last && entry.kernel.use_count() <= 1;
      counters_.bytes -= goes ? entry.bytes : 0;
      return goes;
    });
  }

  ObjectCompiler& compilerFor(const Target& target) {
    std::unique_ptr<ObjectCompiler>& compiler = compilers_[targetKey(target)];
    if (compiler == nullptr) {
      compiler = std::make_unique<ObjectCompiler>(target);
    }
    return *compiler;
  }

  std::shared_ptr<const CompiledKernel> make(const passes::Kernel& kernel, const std::string& structure,
                                             const EmitOptions& options, Entry& entry) {
    std::string& reason = entry.reason;
    ObjectCompiler& code = compilerFor(options.target);
    if (!code.ready(reason)) {
      return nullptr;
    }
    const std::string key = code.key() + "\n" + structure;
    bool bad = false;
    if (const std::optional<std::string> object = disk_.read(key, bad)) {
      if (auto loaded = code.load(*object, kSymbol, reason)) {
        ++counters_.loaded;
        entry.bytes = object->size();
        counters_.bytes += entry.bytes;
        nameForPerf(reinterpret_cast<const void*>(loaded->function), *object, structure);
        return loaded;
      }
      bad = true;
    }
    counters_.rejected += bad ? 1 : 0;
    faultPoint("kernel");
    llvm::LLVMContext context;
    const std::string object = code.compile(*emitKernel(context, kernel, kSymbol, options), reason);
    if (object.empty()) {
      return nullptr;
    }
    auto loaded = code.load(object, kSymbol, reason);
    if (loaded != nullptr) {
      KINTSUGI_CHECK(loaded->function != nullptr, "a kernel without its function");
      ++counters_.compiled;
      entry.bytes = object.size();
      counters_.bytes += entry.bytes;
      disk_.write(key, object);
      nameForPerf(reinterpret_cast<const void*>(loaded->function), object, structure);
    }
    return loaded;
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<ObjectCompiler>> compilers_;  // by target
  std::unordered_map<std::string, Entry> kernels_;                              // by target and structure
  CacheCounters counters_;
  uint64_t uses_ = 0;
  size_t limit_ = kMostKernels;
  DiskCache disk_;
  // Guards what follows; taken after mutex_.
  std::mutex choiceMutex_;
  std::unordered_map<std::string, std::string> choices_, choiceKeys_;  // by question
  DiskCache choiceDisk_;
};

}  // namespace

std::shared_ptr<const CompiledKernel> compileKernel(const passes::Kernel& kernel, bool contract,
                                                    std::string& reason, unsigned tiles) {
  return Cache::instance().get(kernel, contract, tiles, reason);
}

std::optional<std::string> recallChoice(const std::string& question) {
  return Cache::instance().recall(question);
}
void rememberChoice(const std::string& question, const std::string& choice) {
  Cache::instance().remember(question, choice);
}

void setMostKernels(size_t limit) { Cache::instance().setLimit(limit); }

void setDiskCache(const std::string& directory, uint64_t limit) {
  Cache::instance().setDisk(directory, limit);
}
CacheCounters cacheCounters() { return Cache::instance().counters(); }
void clearCache(bool disk) { Cache::instance().clear(disk); }
void prepareFork() { Cache::instance().lock(); }
void afterFork() { Cache::instance().unlock(); }
std::string targetDescription() { return Cache::instance().describe(); }

}  // namespace kintsugi::codegen
