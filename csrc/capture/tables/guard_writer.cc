#include "capture/tables/guard_writer.h"

#include <algorithm>

#include "capture/source_hash.h"

namespace kintsugi::capture {

void GuardWriter::write(const Condition& condition) {
  const auto [kind, source, key, number, other] = condition;
  guard::BlockId resolved = source == ir::kNone ? blocks_.validFrom() : nodes_[source].block;
  if (other != ir::kNone) resolved = std::max(resolved, nodes_[other].block);
  const guard::BlockId block = blocks_.ofGuard(kind, resolved);
  // The first word is source and key, multiplied to spread the bits; the second is kind, block and other.
  uint64_t hash = (static_cast<uint64_t>(key) << 32 | source) * 0x9e3779b97f4a7c15ull;
  hash = mixHash(hash ^ (hash >> 32),
                 static_cast<uint64_t>(kind) << 56 ^ static_cast<uint64_t>(block) << 32 ^ other);
  hash = mixHash(hash, static_cast<uint64_t>(number));
  if (written_.try_emplace(hash, true).second) guards_.push_back({kind, block, source, other, key, number});
}

}  // namespace kintsugi::capture
