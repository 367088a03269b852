// Version counters behind a graph of an FX backend: as eager mode counts its writes, which the backend may
// count otherwise.
//
//   WriteVersions before(inputs);
//   ... the graph runs ...
//   before.count(times);                 inputs[k] has been written to times[k] times
//   WriteVersions::set(result, 1);
//
// Nothing is done where autograd follows: what it has kept is compared with the versions of the graph's own
// run. Ownership: none. Threads: one at a time. The GIL is not needed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "torchapi/value.h"

namespace kintsugi::torchapi {

// Does eager mode count one write for each argument that the operator writes to? A composite operator counts
// as the operators do that it is made of.
bool countsWritesOnce(std::string_view name);

class WriteVersions {
 public:
  explicit WriteVersions(std::span<const Value> inputs);
  // Tensors that share memory share a counter.
  void count(std::span<const uint32_t> times) const;
  static void set(const Value& result, uint32_t version);
  bool isFollowed() const { return followed_; }

 private:
  std::span<const Value> inputs_;
  std::vector<uint32_t> versions_;
  bool followed_ = false;
};

}  // namespace kintsugi::torchapi
