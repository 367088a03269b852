// FlatMap: a hash table in one piece of memory, for tables with many small entries that live as long as a
// recording.
//
// tsl::robin_map with a hash that mixes: addresses and sequential numbers differ in few bits. Against
// std::unordered_map an insertion moves iterators and references, so nothing of it may be held across one;
// there is no node for each entry, which is what the destruction of a large table costs. The order of
// iteration depends on addresses: not for anything that is printed.
#pragma once

#include <tsl/robin_map.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kintsugi {

struct MixedHash {
  template <typename Key>
  size_t operator()(Key key) const {
    uint64_t bits = 0;
    if constexpr (std::is_pointer_v<Key>) {
      bits = reinterpret_cast<uintptr_t>(key);
    } else {
      bits = static_cast<uint64_t>(key);
    }
    bits *= 0x9e3779b97f4a7c15ULL;  // 2^64 divided by the golden ratio
    return bits ^ (bits >> 32);
  }
};

template <typename Key, typename Value>
using FlatMap = tsl::robin_map<Key, Value, MixedHash>;

}  // namespace kintsugi
