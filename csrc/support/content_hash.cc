#include "support/content_hash.h"

#include <cstring>
#include <iterator>

namespace kintsugi {

namespace {

constexpr size_t kLanes = 8;
constexpr uint64_t kPrime = 0x9E3779B185EBCA87ull;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 29);
}

// Lanes are folded as XXH3 does it: the halves of what is read, each mixed with a key, are multiplied, so
// that neither order nor position is lost.
[[gnu::always_inline]] inline uint64_t hashWith(const unsigned char* from, size_t bytes) {
  uint64_t sums[kLanes], keys[kLanes];
  for (size_t k = 0; k < kLanes; ++k) {
    sums[k] = keys[k] = kPrime * (2 * k + 1);
  }
  const size_t words = bytes / sizeof(uint64_t);
  size_t at = 0;
  for (; at + kLanes <= words; at += kLanes) {
    uint64_t read[kLanes];
    std::memcpy(read, from + at * sizeof(uint64_t), sizeof(read));
    for (size_t k = 0; k < kLanes; ++k) {
      const uint64_t mixed = read[k] ^ keys[k];
      sums[k] += (mixed & 0xFFFFFFFFu) * (mixed >> 32) + ((read[k] << 32) | (read[k] >> 32));
      keys[k] += kPrime;
    }
  }
  uint64_t out = bytes;
  for (size_t k = 0; k < kLanes; ++k) {
    out = mix(out + sums[k]) * kPrime;
  }
  for (; at < words; ++at) {
    uint64_t word = 0;
    std::memcpy(&word, from + at * sizeof(uint64_t), sizeof(word));
    out = mix(out ^ word) * kPrime;
  }
  if (const size_t left = bytes % sizeof(uint64_t); left != 0) {
    uint64_t rest = 0;
    std::memcpy(&rest, from + words * sizeof(uint64_t), left);
    out = mix(out ^ rest) * kPrime;
  }
  return out;
}

uint64_t hashBaseline(const unsigned char* from, size_t bytes) { return hashWith(from, bytes); }
#if defined(__x86_64__)
[[gnu::target("avx2")]] uint64_t hashAvx2(const unsigned char* from, size_t bytes) {
  return hashWith(from, bytes);
}
[[gnu::target("avx512f")]] uint64_t hashAvx512(const unsigned char* from, size_t bytes) {
  return hashWith(from, bytes);
}
#endif

using Hash = uint64_t (*)(const unsigned char* from, size_t bytes);

// By level.
constexpr Hash kHashes[] = {
#if defined(__x86_64__)
    hashBaseline,
    hashAvx2,
    hashAvx512,
    hashBaseline,
#else
    hashBaseline,
    hashBaseline,
    hashBaseline,
    hashBaseline,
#endif
};

}  // namespace

uint64_t hashContent(const void* data, size_t bytes, VectorLevel level) {
  static_assert(std::size(kHashes) == kVectorLevels, "each level has a line of kHashes");
  return kHashes[static_cast<size_t>(level)](static_cast<const unsigned char*>(data), bytes);
}

uint64_t hashContent(const void* data, size_t bytes) {
  return hashContent(data, bytes, target().machine.level);
}

}  // namespace kintsugi
