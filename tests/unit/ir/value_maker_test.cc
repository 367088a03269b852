#include "ir/value_maker.h"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi::ir {
namespace {

// Instructions with none, one or several results, in every order.
TEST(MakerOf, FindsEachValueAndNoOther) {
  const Type object{TypeKind::kObject, kNone};
  for (uint32_t shape = 0; shape < 243; ++shape) {
    Trace trace;
    std::vector<size_t> makers;
    for (uint32_t rest = shape, i = 0; i < 5; ++i, rest /= 3) {
      const std::vector<Type> results(rest % 3, object);
      const size_t at = trace.append(Op::kAten, {}, results);
      makers.insert(makers.end(), results.size(), at);
    }
    for (ValueId value = 0; value < makers.size(); ++value)
      EXPECT_EQ(makerOf(trace, value), &trace.code[makers[value]]) << shape;
    EXPECT_EQ(makerOf(trace, static_cast<ValueId>(makers.size())), nullptr);
  }
  EXPECT_EQ(makerOf(Trace{}, 0), nullptr);
}

}  // namespace
}  // namespace kintsugi::ir
