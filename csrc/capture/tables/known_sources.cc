#include "capture/tables/known_sources.h"

#include <algorithm>

namespace kintsugi::capture {

void KnownSources::adopt(const std::vector<uint64_t>& hashes) {
  KINTSUGI_CHECK(hashes_.empty(), "sources of a parent after sources of its own");
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
