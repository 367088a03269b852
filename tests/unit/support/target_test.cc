#include "support/target.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/host_machine.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

Machine machineOf(VectorLevel level) {
  return {.level = level, .l1Bytes = 32768, .l2Bytes = 1 << 20, .l3Bytes = 32 << 20, .cores = 2};
}

// The figures that the constants had when each was tuned by hand, on a machine like this.
TEST(Target, FiguresOfAMachineWithAvx512) {
  const Target t = describeTarget(machineOf(VectorLevel::kAvx512));
  EXPECT_EQ(t.lanes, 16u);
  EXPECT_EQ(t.columnLanes, 64u);
  EXPECT_EQ(t.square, 16u);
  EXPECT_EQ(t.transposeSquare, 8u);
  EXPECT_EQ(t.transposeColumns, 256u);
  EXPECT_EQ(t.products.tall, (ProductTile{12, 2}));
  EXPECT_EQ(t.products.wide, (ProductTile{6, 4}));
  EXPECT_TRUE(t.products.preferWide);
  EXPECT_EQ(t.products.depth, 512);
  EXPECT_EQ(t.products.rows, 288);
  EXPECT_EQ(t.products.rowStep, 24);
  EXPECT_EQ(t.products.fewestRows, 12);
  EXPECT_EQ(t.products.fewestColumns, 8);
  EXPECT_EQ(t.attention.keysOfMany, 96);
  EXPECT_EQ(t.attention.keysOfFew, 128);
  EXPECT_EQ(t.attention.fewLanes, 16u);
  EXPECT_EQ(t.attention.fewQueries, 9);
  const Target::ChannelsLast& l = t.channelsLast;
  EXPECT_DOUBLE_EQ(l.plain, 0.5);
  EXPECT_DOUBLE_EQ(l.folded, 0.1);
  EXPECT_DOUBLE_EQ(l.fewChannels, 0.3);
  EXPECT_EQ(l.fewerThan, 64);
  EXPECT_DOUBLE_EQ(l.image, 4);
  EXPECT_EQ(l.imageChannels, 4);
  EXPECT_DOUBLE_EQ(l.narrowProduct, -0.5);
  EXPECT_EQ(l.narrowerThan, 16);
  const Target::Costs& c = t.costs;
  EXPECT_EQ(c.minWorkPerThread, 65536);
  EXPECT_EQ(c.updateGrain, 32768);
  EXPECT_EQ(c.smallKernel, 4096);
  EXPECT_EQ(c.smallTensor, 16384);
  EXPECT_EQ(c.keptElements, 262144);
  EXPECT_EQ(c.narrowRun, 8);
  EXPECT_EQ(c.narrowTensor, 2048);
  EXPECT_EQ(c.longestRow, 16384);
  EXPECT_EQ(c.longestColumn, 1024);
  EXPECT_EQ(c.fewestRows, 4);
  EXPECT_EQ(c.mostRepeats, 8);
  EXPECT_EQ(c.flopsPerNanosecond, 100);
  EXPECT_EQ(c.streams, 12u);
  EXPECT_EQ(c.smallStreams, 16u);
  EXPECT_EQ(c.costlyOperation, 8);
  EXPECT_EQ(c.fusedMultiplies, 8);
  EXPECT_EQ(c.scoreOperations, 2);
  EXPECT_DOUBLE_EQ(c.moveNanoseconds, 0.8);
  EXPECT_DOUBLE_EQ(c.passNanoseconds, 0.25);
  EXPECT_EQ(c.pooledBytes, 32768u);
  EXPECT_EQ(c.hashedBytes, 262144u);
}

TEST(Target, TilesOfTheOtherLevels) {
  const Target avx2 = describeTarget(machineOf(VectorLevel::kAvx2));
  EXPECT_EQ(avx2.lanes, 16u);
  EXPECT_EQ(avx2.products.tall, (ProductTile{6, 1}));
  EXPECT_EQ(avx2.products.wide, (ProductTile{3, 2}));
  EXPECT_EQ(avx2.square, 8u);
  EXPECT_FALSE(avx2.products.preferWide);
  const Target sse4 = describeTarget(machineOf(VectorLevel::kSse4));
  EXPECT_EQ(sse4.lanes, 8u);
  EXPECT_EQ(sse4.products.tall, (ProductTile{6, 1}));
  EXPECT_EQ(sse4.square, 4u);
  EXPECT_EQ(sse4.attention.fewQueries, 5);
  const Target neon = describeTarget(machineOf(VectorLevel::kNeon));
  EXPECT_EQ(neon.lanes, 8u);
  EXPECT_EQ(neon.products.tall, (ProductTile{12, 1}));
  EXPECT_EQ(neon.products.wide, (ProductTile{6, 2}));
  EXPECT_EQ(neon.square, 8u);
}

// What the emitter relies on, for machines with caches of any size.
TEST(Target, EveryTargetKeepsTheRulesOfTheEmitter) {
  for (const VectorLevelInfo& info : vectorLevels()) {
    for (const size_t l1 : {4096, 16384, 32768, 49152, 196608}) {
      for (const size_t l2 : {65536, 262144, 524288, 1 << 20, 16 << 20}) {
        Machine machine = machineOf(info.level);
        machine.l1Bytes = l1;
        machine.l2Bytes = l2;
        const Target t = describeTarget(machine);
        for (const ProductTile& tile : {t.products.tall, t.products.wide}) {
          const int64_t columns = tile.vectors * t.lanes;
          EXPECT_EQ(64 % columns, 0);  // KernelProduct::kStrip, KernelAttention::kChunk
          EXPECT_EQ(columns % t.square, 0);
          EXPECT_EQ(columns % t.transposeSquare, 0);
          EXPECT_EQ(t.products.rowStep % tile.rows, 0);
          // Sums, a row of the right operand and an element of the left one.
          const unsigned each = t.lanes / info.registerFloats;
          EXPECT_LE(tile.rows * tile.vectors * each + tile.vectors * each, info.registers);
        }
        EXPECT_GE(t.products.depth, 128);
        EXPECT_LE(t.products.depth, 512);  // KernelProduct::kMaxDepth
        EXPECT_EQ(t.products.rows % t.products.rowStep, 0);
        EXPECT_GE(t.products.rows, t.products.rowStep);
        EXPECT_GE(t.attention.keysOfMany, 48);
        EXPECT_EQ(t.transposeColumns % t.transposeSquare, 0u);
        EXPECT_EQ(t.transposeRows % t.transposeSquare, 0u);
        EXPECT_EQ(t.lanes % static_cast<unsigned>(t.costs.mostRepeats), 0u);
        EXPECT_LE(t.costs.longestRow, 16384);
        EXPECT_EQ(t.costs.hashedBytes % 8, 0u);
      }
    }
  }
}

TEST(Target, SmallerCachesHaveSmallerBlocks) {
  Machine small = machineOf(VectorLevel::kAvx2);
  small.l2Bytes = 256 << 10;
  const Target t = describeTarget(small), large = describeTarget(machineOf(VectorLevel::kAvx2));
  EXPECT_EQ(t.products.depth, 256);
  EXPECT_LT(t.products.rows, large.products.rows);
  EXPECT_LT(t.costs.keptElements, large.costs.keptElements);
}

TEST(Target, LevelsHaveNamesAndAnOrder) {
  EXPECT_EQ(levelNamed("avx2"), VectorLevel::kAvx2);
  EXPECT_FALSE(levelNamed("avx3").has_value());
  EXPECT_TRUE(includesLevel(VectorLevel::kAvx512, VectorLevel::kSse4));
  EXPECT_FALSE(includesLevel(VectorLevel::kAvx2, VectorLevel::kAvx512));
  EXPECT_FALSE(includesLevel(VectorLevel::kNeon, VectorLevel::kSse4));
}

TEST(Target, ALimitNeverGoesBeyondTheMachine) {
  for (const VectorLevelInfo& info : vectorLevels()) {
    limitTarget(info.level);
    EXPECT_TRUE(includesLevel(hostMachine().level, target().machine.level));
    if (includesLevel(hostMachine().level, info.level)) {
      EXPECT_EQ(target().machine.level, info.level);
    }
  }
  limitTarget(std::nullopt);
  EXPECT_EQ(target().machine, hostMachine());
}

TEST(Target, AScopeIsOfItsThreadAndEnds) {
  const std::string before = targetKey(target());
  {
    const TargetScope scope(describeTarget({.level = VectorLevel::kNeon}));
    EXPECT_EQ(target().machine.level, VectorLevel::kNeon);
    EXPECT_NE(targetKey(target()), before);
  }
  EXPECT_EQ(targetKey(target()), before);
}

class Caches : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "kintsugi-caches-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(int index, const std::string& level, const std::string& type, const std::string& size) {
    const fs::path folder = root_ / ("index" + std::to_string(index));
    fs::create_directories(folder);
    std::ofstream(folder / "level") << level << "\n";
    std::ofstream(folder / "type") << type << "\n";
    std::ofstream(folder / "size") << size << "\n";
    std::ofstream(folder / "ways_of_associativity") << "12\n";
    std::ofstream(folder / "coherency_line_size") << "128\n";
  }

  fs::path root_;
};

TEST_F(Caches, SizesAreRead) {
  put(0, "1", "Data", "48K");
  put(1, "1", "Instruction", "64K");
  put(2, "2", "Unified", "2M");
  put(3, "3", "Unified", "32768K");
  Machine machine;
  readCaches(root_.string(), machine);
  EXPECT_EQ(machine.l1Bytes, 48u << 10);
  EXPECT_EQ(machine.l1Ways, 12u);
  EXPECT_EQ(machine.lineBytes, 128u);
  EXPECT_EQ(machine.l2Bytes, 2u << 20);
  EXPECT_EQ(machine.l3Bytes, 32u << 20);
}

TEST_F(Caches, WhatIsNotThereOrMakesNoSenseStays) {
  put(0, "1", "Data", "huge");
  put(1, "2", "Unified", "0K");
  Machine machine;
  readCaches(root_.string(), machine);
  readCaches((root_ / "none").string(), machine);
  EXPECT_EQ(machine.l1Bytes, Machine().l1Bytes);
  EXPECT_EQ(machine.l2Bytes, Machine().l2Bytes);
  EXPECT_EQ(machine.l3Bytes, 0u);
}

}  // namespace
}  // namespace kintsugi
