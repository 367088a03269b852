#include "capture/tables/known_sources.h"

#include "capture/source_hash.h"
#include "support/check.h"

namespace kintsugi::capture {

uint64_t mixHash(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2);
  a *= 0xff51afd7ed558ccdull;
  return a ^ (a >> 33);
}

uint64_t sourceHash(uint64_t parent, guard::SourceKind kind, PyObject* key, int64_t index) {
  uint64_t hash = mixHash(parent, static_cast<uint64_t>(kind) + 1);
  if (key != nullptr) {
    hash = mixHash(hash, PyUnicode_CheckExact(key) || PyLong_CheckExact(key)
                             ? static_cast<uint64_t>(PyObject_Hash(key))
                             : reinterpret_cast<uint64_t>(key));
  }
  return mixHash(hash, static_cast<uint64_t>(index));
}

KnownSources::Found KnownSources::find(const Path& path, guard::BlockId block) {
  KINTSUGI_CHECK(path.parent == ir::kNone || path.parent < hashes_.size(), "a source that is read from $",
                 path.parent, " of ", hashes_.size());
  const uint64_t parent = path.parent == ir::kNone ? kNoParent : hashes_[path.parent];
  const uint64_t hash = sourceHash(parent, path.kind, path.key, path.index);
  const auto [entry, isNew] =
      byPath_.try_emplace(mixHash(hash, block), static_cast<ir::SourceId>(hashes_.size()));
  return {entry->second, hash, isNew};
}

void KnownSources::append(const Found& found, const guard::SourceNode& node, PyObject* object) {
  KINTSUGI_CHECK(found.id == hashes_.size(), "source $", found.id, " is added as $", hashes_.size());
  KINTSUGI_CHECK(nodes_.size() == hashes_.size(), nodes_.size(), " nodes for ", hashes_.size(), " sources");
  nodes_.push_back(node);
  hashes_.push_back(found.hash);
  objects_.push_back(object);
  shadows_.push_back(Shadow::null());
}

void KnownSources::adopt(const std::vector<uint64_t>& hashes) {
  KINTSUGI_CHECK(hashes_.empty(), "sources of a parent behind sources of its own");
  hashes_ = hashes;
  objects_.resize(hashes_.size(), nullptr);
  shadows_.resize(hashes_.size(), Shadow::null());
}

std::optional<ir::SourceId> KnownSources::of(PyObject* object) const {
  const auto found = ids_.find(object);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void KnownSources::forget(PyObject* object) {
  ids_.erase(object);
  std::ranges::replace(objects_, object, nullptr);
}

void KnownSources::clear() {
  ids_.clear();
  std::fill(objects_.begin(), objects_.end(), nullptr);
}

}  // namespace kintsugi::capture
