#include "support/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

class ControlGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "kintsugi-groups-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  uint64_t limit(const std::string& membership) { return controlGroupLimit(membership, root_.string()); }

  fs::path root_;
};

TEST_F(ControlGroups, VersionTwo) {
  put("memory.max", "max");
  put("batch/memory.max", "3000");
  put("batch/job/memory.max", "5000");
  EXPECT_EQ(limit("0::/batch/job\n"), 3000u);  // a group is limited by those above it
  EXPECT_EQ(limit("0::/\n"), UINT64_MAX);
  put("memory.max", "2000");
  EXPECT_EQ(limit("0::/\n"), 2000u);
  EXPECT_EQ(limit("0::/not/in/this/mount\n"), 2000u);
}

TEST_F(ControlGroups, VersionOne) {
  put("memory/memory.limit_in_bytes", "9223372036854771712");
  put("memory/docker/c0ffee/memory.limit_in_bytes", "4096000");
  put("cpu/docker/c0ffee/memory.limit_in_bytes", "1");
  EXPECT_EQ(limit("5:cpu,cpuacct:/docker/c0ffee\n4:memory:/docker/c0ffee\n"), 4096000u);
  EXPECT_EQ(limit("4:hugetlb,memory:/docker/c0ffee\n"), 4096000u);
  put("memory/memory.limit_in_bytes", "777");
  EXPECT_EQ(limit("4:memory:/docker/c0ffee\n"), 777u);
}

TEST_F(ControlGroups, BothAtOnce) {
  put("memory/job/memory.limit_in_bytes", "500");
  put("unified/job/memory.max", "400");
  EXPECT_EQ(limit("4:memory:/job\n0::/job\n"), 400u);
}

TEST_F(ControlGroups, JunkLimitsNothing) {
  EXPECT_EQ(limit(""), UINT64_MAX);
  EXPECT_EQ(limit("::\nno colon\n0:\n:::::/x\n"), UINT64_MAX);
  put("memory.max", "a lot");
  EXPECT_EQ(limit("0::/\n"), UINT64_MAX);
}

TEST(AvailableMemory, IsNoMoreThanUlimitLeaves) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const uint64_t unlimited = availableMemory();
  EXPECT_GT(unlimited, 0u);
  // A little more than what is mapped: a sanitizer maps terabytes, and ends the process where it gets no
  // more.
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  const rlimit tight{pages * 4096 + (size_t{123} << 20), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const uint64_t limited = availableMemory();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(limited, std::min<uint64_t>(unlimited, tight.rlim_cur));
}

}  // namespace
}  // namespace kintsugi
