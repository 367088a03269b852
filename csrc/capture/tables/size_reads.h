// The sizes of tensors that the trace has read. Each size is one value of the trace, however often the
// program asks for it.
//
// Once an in-place operator or a step may have resized a tensor, all sizes are read again. After a step, the
// sizes that the tensor was made with are unknown as well.
//
// Plain numbers; owned by the Recorder. The recording thread. Example:
//
//   if (auto known = reads.find(tensor, ir::Op::kSize, 0)) return Shadow::value(*known);
//   reads.add(tensor, ir::Op::kSize, 0, trace.code[at].firstResult);
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "ir/trace.h"
#include "support/check.h"

namespace kintsugi::capture {

class SizeReads {
 public:
  std::optional<ir::ValueId> find(ir::ValueId tensor, ir::Op op, int64_t dim) const {
    const auto found = values_.find({tensor, op, dim});
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  void add(ir::ValueId tensor, ir::Op op, int64_t dim, ir::ValueId value) {
    KINTSUGI_CHECK(tensor != ir::kNone && value != ir::kNone, "a size of no tensor, or that is no value");
    values_.emplace(Key{tensor, op, dim}, value);
  }
  void forgetAll() { values_.clear(); }

  void noteResized(ir::ValueId tensor) {
    forgetAll();
    resized_.insert(tensor);
  }
  bool mayBeResized(ir::ValueId tensor) const { return resized_.contains(tensor); }

 private:
  using Key = std::tuple<ir::ValueId, ir::Op, int64_t>;
  std::map<Key, ir::ValueId> values_;
  std::unordered_set<ir::ValueId> resized_;
};

}  // namespace kintsugi::capture
