// The stance set by kintsugi.set_stance(): whether a call that no trace fits is recorded, runs in eager mode
// or is an error, and which backend replaces the callables' own.
//
// Process-wide, as in torch. Threads: read and written under the GIL. Ownership: holds the backend.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pyapi/arguments.h"
#include "pyapi/ref.h"

namespace kintsugi::driver {

enum class StanceKind : uint8_t {
  kDefault,
  kForceEager,
  kEagerOnRecompile,  // a call without a trace runs in eager mode, and nothing is recorded
  kFailOnRecompile,   // a call without a trace is an error
  kEagerThenCompile,  // the first call of a callable runs in eager mode, and tells which sizes vary
};

struct Stance {
  StanceKind kind = StanceKind::kDefault;
  bool skipsGuards = false;  // only guards that distinguish traces are checked
  bool hasBackend = false;   // the stance has a backend of its own, used in place of each callable's
  bool native = false;       // it is ours, with machine code
  pyapi::Ref<> backend;      // called with segments; null: it is ours
};
const Stance& stance();
void setStance(Stance wanted);
namespace detail {
extern bool stanceIsSet;
}
inline bool stanceIsSet() { return detail::stanceIsSet; }  // to anything but the default

// The sizes and numbers of a call's arguments, by the hashes of their paths.
class SeenArguments {
 public:
  bool taken() const { return taken_; }
  void take(const pyapi::Arguments& args);
  // What is another number or size in `args` is added: numbers to `sources`, dimensions, as bits, to `sizes`.
  void addDifferences(const pyapi::Arguments& args, std::unordered_set<uint64_t>& sources,
                      std::unordered_map<uint64_t, uint64_t>& sizes) const;
  void forget() { *this = {}; }

 private:
  struct Seen {
    std::vector<int64_t> sizes;  // of a tensor
    pyapi::Ref<> number;         // an int or a float
  };

  bool taken_ = false;
  std::unordered_map<uint64_t, Seen> seen_;
};

}  // namespace kintsugi::driver
