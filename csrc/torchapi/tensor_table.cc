#include "torchapi/tensor_table.h"

#include <algorithm>

#include "support/check.h"
#include "torchapi/tensor_stamp.h"

namespace kintsugi::torchapi {

size_t TensorTable::metaHash(const ir::TensorDesc& info) {
  size_t h = info.keySet ^ reinterpret_cast<uintptr_t>(info.pyType);
  auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15ull + (h >> 29); };
  mix(static_cast<uint64_t>(info.dtype) << 32 | static_cast<uint64_t>(info.requiresGrad) << 1 |
      static_cast<uint64_t>(info.isLeaf));
  for (const int64_t size : info.sizes) {
    mix(static_cast<uint64_t>(size));
  }
  mix(0x51ce);
  for (const int64_t stride : info.strides) {
    mix(static_cast<uint64_t>(stride));
  }
  for (const int64_t size : info.hints.sizes) {
    mix(static_cast<uint64_t>(size));
  }
  return h;
}

TensorTable::Known& TensorTable::name(const at::TensorImpl* impl, size_t stamp, ir::ValueId value) {
  KINTSUGI_CHECK(value != ir::kNone && impl != nullptr, "a tensor without a value");
  auto [it, inserted] = known_.try_emplace(impl);
  if (!inserted && it->second.value < value) changed_[it->second.value] = value;
  it->second.value = value;
  it->second.stamp = stamp;
  if (inserted) {
    using Strong = c10::intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;
    it->second.weak = Strong::reclaim_copy(const_cast<at::TensorImpl*>(impl));
  }
  return it->second;
}

void TensorTable::bind(const at::TensorImpl* impl, size_t stamp, ir::ValueId value, MetaLevel level) {
  name(impl, stamp, value);
  setLevel(value, level);
  declared_[value] = level;
  likely_.erase(value);
}

void TensorTable::forget(ir::ValueId value) {
  std::erase_if(known_, [value](const auto& entry) { return entry.second.value == value; });
  likely_.erase(value);
}

void TensorTable::setLevel(ir::ValueId value, MetaLevel level) {
  value = newest(value);
  KINTSUGI_CHECK(value != ir::kNone, "the level of no value");
  if (value >= levels_.size()) {
    levels_.resize(value + 64, MetaLevel::kUnknown);
    declared_.resize(value + 64, MetaLevel::kUnknown);
    since_.resize(value + 64, 0);
  }
  levels_[value] = level;
  since_[value] = epoch_;
  declared_[value] = std::min(declared_[value], level);
}

void TensorTable::expireChanged() {
  for (const auto& [impl, known] : known_) {
    if (known.weak.use_count() == 0 || metaStamp(*impl) == known.stamp) continue;
    const ir::ValueId value = newest(known.value);
    if (value < since_.size()) since_[value] = epoch_ - 1;
  }
}

void TensorTable::adoptLevels(const std::vector<MetaLevel>& levels, ir::ValueId known) {
  levels_ = declared_ = levels;
  expireLevels();
  since_.assign(levels.size(), epoch_);
  std::fill_n(since_.begin(), std::min<size_t>(known, levels.size()), epoch_ - 1);
}

std::vector<MetaLevel> TensorTable::takeLevels() {
  for (auto it = changed_.rbegin(); it != changed_.rend(); ++it) {
    KINTSUGI_CHECK(it->first < declared_.size() && it->second < declared_.size(), "%", it->first, " is %",
                   it->second, " of ", declared_.size());
    declared_[it->first] = std::min(declared_[it->first], declared_[it->second]);
  }
  return std::move(declared_);
}

ir::MetaId TensorTable::internMeta(ir::Trace& trace, const ir::TensorDesc& info) {
  const size_t hash = metaHash(info);
  const auto [begin, end] = metaIndex_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (trace.metas[it->second] == info) {
      return it->second;
    }
  }
  const auto id = static_cast<ir::MetaId>(trace.metas.size());
  trace.metas.push_back(info);
  metaIndex_.emplace(hash, id);
  return id;
}

void TensorTable::adoptMetas(const ir::Trace& trace) {
  for (size_t id = 0; id < trace.metas.size(); ++id) {
    metaIndex_.emplace(metaHash(trace.metas[id]), static_cast<ir::MetaId>(id));
  }
}

uint32_t TensorTable::opName(ir::Trace& trace, const OpSchema& schema) {
  auto [it, inserted] = opNames_.try_emplace(&schema, ir::kNone);
  if (inserted) {
    it->second = trace.internOpName(schema.name);
  }
  return it->second;
}

}  // namespace kintsugi::torchapi
