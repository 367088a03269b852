#include "torchapi/tensor_table.h"

#include <algorithm>

#include "support/check.h"

namespace kintsugi::torchapi {

namespace {

// The storage offset is no part of a guard, so it must not make two numbers out of one.
bool sameExceptOffset(const TensorInfo& a, const TensorInfo& b) {
  return a.pyType == b.pyType && a.keySet == b.keySet && a.dtype == b.dtype && a.deviceType == b.deviceType &&
         a.deviceIndex == b.deviceIndex && a.layout == b.layout && a.requiresGrad == b.requiresGrad &&
         a.isLeaf == b.isLeaf && a.isParam == b.isParam && a.isConj == b.isConj && a.isNeg == b.isNeg &&
         a.plain == b.plain && a.contiguous == b.contiguous && a.sizes == b.sizes && a.strides == b.strides;
}

}  // namespace

size_t TensorTable::metaHash(const TensorInfo& info) {
  size_t h = info.keySet;
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
  return h;
}

void TensorTable::bind(const at::TensorImpl* impl, size_t stamp, ir::ValueId value, MetaLevel level) {
  auto [it, inserted] = known_.try_emplace(impl);
  it->second.value = value;
  it->second.stamp = stamp;
  if (inserted) {
    using Strong = c10::intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;
    it->second.weak = Strong::reclaim_copy(const_cast<at::TensorImpl*>(impl));
  }
  setLevel(value, level);
  declared_[value] = level;
  likely_.erase(value);
}

void TensorTable::forget(ir::ValueId value) {
  std::erase_if(known_, [value](const auto& entry) { return entry.second.value == value; });
  likely_.erase(value);
}

void TensorTable::setLevel(ir::ValueId value, MetaLevel level) {
  if (value >= levels_.size()) {
    levels_.resize(value + 64, MetaLevel::kUnknown);
    declared_.resize(value + 64, MetaLevel::kUnknown);
  }
  levels_[value] = level;
  declared_[value] = std::min(declared_[value], level);
}

ir::MetaId TensorTable::internMeta(ir::Trace& trace, const TensorInfo& info) {
  const size_t hash = metaHash(info) ^ reinterpret_cast<uintptr_t>(info.pyType);
  const auto [begin, end] = infoIndex_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (sameExceptOffset(infos_[it->second], info)) {
      return it->second;
    }
  }
  const auto id = static_cast<ir::MetaId>(infos_.size());
  KINTSUGI_CHECK(trace.metas.size() == infos_.size(), "metadata numbers of trace and recorder differ");
  infos_.push_back(info);
  // Not Trace::internMeta(), which would merge descriptions that read the same: the numbers must stay in
  // step.
  trace.metas.push_back(describe(info));
  infoIndex_.emplace(hash, id);
  return id;
}

void TensorTable::adoptInfos(const std::vector<TensorInfo>& infos) {
  KINTSUGI_CHECK(infos_.empty(), "metadata is adopted first");
  infos_ = infos;
  for (size_t id = 0; id < infos_.size(); ++id) {
    infoIndex_.emplace(metaHash(infos_[id]) ^ reinterpret_cast<uintptr_t>(infos_[id].pyType),
                       static_cast<ir::MetaId>(id));
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
