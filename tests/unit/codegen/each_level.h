// Tests that run for every level of vector instructions that this machine has.
//
//   class Kernel : public EachLevel {};
//   TEST_P(Kernel, Adds) { ... compileKernel(...) makes code for the level ... }
//   KTG_EACH_LEVEL(Kernel);
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/host_machine.h"

namespace kintsugi::codegen {

class EachLevel : public ::testing::TestWithParam<VectorLevel> {
 protected:
  EachLevel() : scope_(describeTarget(machine())) {}

 public:
  static std::vector<VectorLevel> ofThisMachine() {
    std::vector<VectorLevel> out;
    for (const VectorLevelInfo& info : vectorLevels()) {
      if (includesLevel(hostMachine().level, info.level)) {
        out.push_back(info.level);
      }
    }
    return out;
  }
  static std::string nameOf(const ::testing::TestParamInfo<VectorLevel>& info) {
    return std::string(levelInfo(info.param).name);
  }

 private:
  static Machine machine() {
    Machine machine = hostMachine();
    machine.level = GetParam();
    return machine;
  }

  const TargetScope scope_;
};

#define KTG_EACH_LEVEL(suite) \
  INSTANTIATE_TEST_SUITE_P(Levels, suite, ::testing::ValuesIn(suite::ofThisMachine()), suite::nameOf)

}  // namespace kintsugi::codegen
