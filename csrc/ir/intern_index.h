// The hash index beside a table of distinct entries: "is this string (op name, metadata) in the table
// already?"
//
// It stores positions of the table only; the caller hashes and compares, so that an entry is stored once.
// Open addressing in one vector: a lookup on the recording path allocates nothing, and moving an index is
// moving a vector. Entries that were added to the table behind its back are taken up at the next use; one
// that was changed in place is just not found (the entry is stored twice, which is harmless).
//
// Ownership: belongs to the table's owner, and is copied and moved with it. Threads: as the table. No GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kintsugi::ir {

class InternIndex {
 public:
  // Brings the index up to date with a table of `size` entries; `hashOf(position)` hashes one.
  template <typename HashOf>
  void catchUp(size_t size, const HashOf& hashOf) {
    if (size < indexed_) {
      slots_.clear();
      indexed_ = 0;
    }
    if (slots_.size() < 2 * (size + 1)) {
      grow(size + 1, hashOf);
    }
    for (; indexed_ < size; ++indexed_) {
      insert(hashOf(indexed_), static_cast<uint32_t>(indexed_));
    }
  }

  // The position that `isEqual` accepts, or `size()`, where the caller then has to append the entry.
  template <typename IsEqual>
  size_t find(size_t hash, const IsEqual& isEqual) const {
    for (size_t i = hash & mask(); slots_[i] != kFree; i = (i + 1) & mask()) {
      if (isEqual(slots_[i])) {
        return slots_[i];
      }
    }
    return indexed_;
  }

  // Records the entry that the caller appends now.
  void add(size_t hash) { insert(hash, static_cast<uint32_t>(indexed_++)); }

  size_t size() const { return indexed_; }

 private:
  static constexpr uint32_t kFree = 0xffffffffu;

  size_t mask() const { return slots_.size() - 1; }

  void insert(size_t hash, uint32_t position) {
    size_t i = hash & mask();
    while (slots_[i] != kFree) {
      i = (i + 1) & mask();
    }
    slots_[i] = position;
  }

  template <typename HashOf>
  void grow(size_t entries, const HashOf& hashOf) {
    size_t capacity = 32;
    while (capacity < 4 * entries) {
      capacity *= 2;
    }
    slots_.assign(capacity, kFree);
    for (size_t i = 0; i < indexed_; ++i) {
      insert(hashOf(i), static_cast<uint32_t>(i));
    }
  }

  std::vector<uint32_t> slots_;  // a power of two, at most half full
  size_t indexed_ = 0;           // entries of the table that are in slots_
};

}  // namespace kintsugi::ir
