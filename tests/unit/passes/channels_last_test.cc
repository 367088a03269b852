#include "passes/channels_last.h"

#include <gtest/gtest.h>

#include "guard/document.h"
#include "ir/segments.h"
#include "passes/extract_segment.h"
#include "support/target.h"

namespace kintsugi::passes {
namespace {

// A transposed convolution of 2 x 64 channels of 32 x 32 elements and an activation.
constexpr const char* kText = R"(sources {
  args "x"
  $0 = arg 0  ; x
}
guards 0 {
  tensor $0 0
}
trace @f.py:1 f {
  meta 0 tensor<f32,[2,64,32,32],cpu>
  meta 1 tensor<f32,[64,64,3,3],cpu,param>
  const #0 "f"
  %0 = input $0 : tensor<0>
  %1 = input $0 : tensor<1>
  segment [%0, %1]
  %2 = aten.conv_transpose2d.input %0, %1, none, [1, 1], [1, 1], [0, 0], 1, [1, 1] : tensor<0> snap !0
  %3 = aten.relu.default %2 : tensor<0> snap !0
  segment.end [%3]
  ret %3
  snap !0 { parent=none code=#0 func=#0 pc=2 locals=[$0] stack=[] }
}
)";

bool isMoved(const Target& target) {
  const diag::Result<guard::Document> document = guard::parse(kText);
  EXPECT_TRUE(document.ok());
  ir::Trace segment = extractSegment(document->trace, ir::findSegments(document->trace).at(0));
  const TargetScope scope(target);
  return putChannelsLast(segment);
}

Target machine() { return describeTarget({.level = VectorLevel::kAvx512, .cores = 1}); }

TEST(ChannelsLast, GainsAndCostsAreOfTheTarget) {
  EXPECT_TRUE(isMoved(machine()));
  Target gainless = machine();
  gainless.channelsLast.plain = 0;
  EXPECT_FALSE(isMoved(gainless));
  Target slow = machine();
  slow.costs.moveNanoseconds *= 1000;
  EXPECT_FALSE(isMoved(slow));
  Target fast = machine();
  fast.costs.flopsPerNanosecond *= 1000;  // there is nothing to gain a share of
  EXPECT_FALSE(isMoved(fast));
}

}  // namespace
}  // namespace kintsugi::passes
