#include "support/content_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "support/host_machine.h"

namespace kintsugi {
namespace {

std::vector<unsigned char> someBytes(size_t count) {
  std::vector<unsigned char> out(count);
  for (size_t k = 0; k < count; ++k) {
    out[k] = static_cast<unsigned char>(k * 37 + k / 256);
  }
  return out;
}

TEST(ContentHash, EveryLevelOfThisMachineGivesTheSame) {
  for (const size_t count : {0, 1, 7, 8, 63, 64, 65, 1000, 4096}) {
    const std::vector<unsigned char> bytes = someBytes(count);
    for (const VectorLevelInfo& info : vectorLevels()) {
      if (includesLevel(hostMachine().level, info.level)) {
        EXPECT_EQ(hashContent(bytes.data(), count, info.level), hashContent(bytes.data(), count))
            << info.name << " " << count;
      }
    }
  }
}

TEST(ContentHash, EveryByteAndItsPlaceCount) {
  std::vector<unsigned char> bytes = someBytes(203);
  std::set<uint64_t> seen{hashContent(bytes.data(), bytes.size()),
                          hashContent(bytes.data(), bytes.size() - 1)};
  for (unsigned char& byte : bytes) {
    byte ^= 1;
    seen.insert(hashContent(bytes.data(), bytes.size()));
    byte ^= 1;
  }
  std::swap(bytes[8], bytes[16]);
  seen.insert(hashContent(bytes.data(), bytes.size()));
  EXPECT_EQ(seen.size(), bytes.size() + 3);
}

}  // namespace
}  // namespace kintsugi
