// Inside torchapi only: the tensors that a recording knows, by identity, and the metadata that it has
// numbered.
//
// Ownership: belongs to one OpRecorder. Holds a weak reference to each TensorImpl: its data may go, its
// address can't be used again. Threads: only the recording one. GIL: not needed. Invalidation: pointers from
// find() die at the next bind().
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "ir/trace.h"
#include "torchapi/op_schema.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

class TensorTable {
 public:
  struct Known {
    ir::ValueId value = ir::kNone;
    size_t stamp = 0;  // metaStamp(): shows that an in-place operation changed the metadata
    c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl> weak{
        c10::intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>()};
  };

  const Known* find(const at::TensorImpl* impl) const {
    const auto it = known_.find(impl);
    return it == known_.end() ? nullptr : &it->second;
  }
  // A tensor whose metadata an operation in place has changed gets a value of its own then. Shadows still
  // name the earlier one: what is asked of it is answered for the tensor as it is now.
  void bind(const at::TensorImpl* impl, size_t stamp, ir::ValueId value, MetaLevel level);
  // The same for a value of a trace that is continued, whose level is known.
  void restore(const at::TensorImpl* impl, size_t stamp, ir::ValueId value) { name(impl, stamp, value); }
  void forgetTensors() { known_.clear(); }
  void forget(ir::ValueId value);  // no tensor has this value any more

  MetaLevel level(ir::ValueId value) const {
    const ir::ValueId now = newest(value);
    return now < levels_.size() && since_[now] == epoch_ ? levels_[now] : MetaLevel::kUnknown;
  }
  void setLevel(ir::ValueId value, MetaLevel level);
  // Code that may change anything has run: from now on nothing is known of the tensors that there are.
  void expireLevels() { ++epoch_; }
  // The code has run in this call alone: nothing is known of tensors that are others now.
  void expireChanged();
  // The level that the value had before; kUnknown: it has none to be renewed.
  MetaLevel expiredLevel(ir::ValueId value) const {
    const ir::ValueId now = newest(value);
    return now < levels_.size() && since_[now] != epoch_ ? levels_[now] : MetaLevel::kUnknown;
  }
  // For the result of an operator whose sizes are not declared, where all arguments are known: in every run
  // it is likely to have the metadata that it has now.
  void setLikely(ir::ValueId value, const OpSchema& op) { likely_[value] = &op; }
  const std::string* likelyFrom(ir::ValueId value) const {
    const auto it = likely_.find(newest(value));
    return it == likely_.end() ? nullptr : &it->second->name;
  }
  // A result that is the argument itself in runs with other sizes or strides.
  void setMaybeArgument(ir::ValueId value) { maybeArguments_.insert(value); }
  bool isMaybeArgument(ir::ValueId value) const { return maybeArguments_.contains(value); }
  // By value: the level at the value's definition. Guards in the trace may have raised level() since.
  std::vector<MetaLevel> takeLevels();
  // Those of values before `known` have expired.
  void adoptLevels(const std::vector<MetaLevel>& levels, ir::ValueId known);

  ir::MetaId internMeta(ir::Trace& trace, const ir::TensorDesc& info);
  // Takes over the metadata of a trace that is continued.
  void adoptMetas(const ir::Trace& trace);
  uint32_t opName(ir::Trace& trace, const OpSchema& schema);

 private:
  Known& name(const at::TensorImpl* impl, size_t stamp, ir::ValueId value);
  static size_t metaHash(const ir::TensorDesc& info);
  ir::ValueId newest(ir::ValueId value) const {
    for (auto it = changed_.find(value); it != changed_.end(); it = changed_.find(value)) value = it->second;
    return value;
  }

  std::unordered_map<const at::TensorImpl*, Known> known_;
  std::vector<MetaLevel> levels_;    // by ValueId
  std::vector<MetaLevel> declared_;  // likewise
  std::vector<uint32_t> since_;      // likewise: the epoch in which the level was found out
  uint32_t epoch_ = 0;
  std::map<ir::ValueId, ir::ValueId>
      changed_;  // a value whose tensor has changed, and the next one, which is larger
  std::unordered_map<ir::ValueId, const OpSchema*> likely_;
  std::set<ir::ValueId> maybeArguments_;
  std::unordered_multimap<size_t, ir::MetaId> metaIndex_;  // the trace's metadata, by hash
  std::unordered_map<const OpSchema*, uint32_t> opNames_;
};

}  // namespace kintsugi::torchapi
