#include "passes/gradient_cuts.h"

#include <gtest/gtest.h>

#include "guard/document.h"

namespace kintsugi::passes {
namespace {

using ir::Op;
using ir::Operand;
using ir::TypeKind;
using ir::ValueId;

// A chain of layers, a parameter each.
class Chain {
 public:
  Chain() { value_ = input(false, {4}); }

  ValueId parameter(int64_t numbers) { return input(true, {numbers}); }
  ValueId input(bool isParam, std::vector<int64_t> sizes, bool requiresGrad = true) {
    ir::TensorDesc meta = ir::TensorDesc::packed(ir::DType::kF32, std::move(sizes));
    meta.isParam = isParam;
    meta.requiresGrad = requiresGrad;
    trace_.metas.push_back(std::move(meta));
    const auto id = static_cast<ir::MetaId>(trace_.metas.size() - 1);
    return trace_.code[append(Op::kInput, {Operand::source(0)}, id)].firstResult;
  }
  size_t layer(ValueId parameter) {
    const size_t at = append(Op::kAten, {Operand::value(value_), Operand::value(parameter)}, ir::kNone);
    value_ = trace_.code[at].firstResult;
    return at;
  }
  std::vector<size_t> cuts(ir::GradientLimits limits, uint32_t start = 0) const {
    const std::vector<bool> found = gradientCuts(trace_, start, limits);
    std::vector<size_t> places;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i]) places.push_back(i);
    }
    return places;
  }

 private:
  size_t append(Op op, const std::vector<Operand>& operands, ir::MetaId meta) {
    const std::vector<ir::Type> results = {{TypeKind::kTensor, meta}};
    return trace_.append(op, operands, results, ir::kNone);
  }

  ir::Trace trace_;
  ValueId value_ = 0;
};

TEST(GradientCuts, NoneWithoutLimits) {
  Chain chain;
  chain.layer(chain.parameter(1000));
  EXPECT_TRUE(chain.cuts({}).empty());
}

TEST(GradientCuts, GroupsOfAtLeastTheLimitCountedFromTheEnd) {
  Chain chain;
  std::vector<size_t> layers;
  for (int i = 0; i < 5; ++i) layers.push_back(chain.layer(chain.parameter(100)));  // 400 bytes each
  EXPECT_EQ(chain.cuts({400, 400}), layers);
  EXPECT_EQ(chain.cuts({800, 800}), (std::vector<size_t>{layers[1], layers[3]}));
  EXPECT_EQ(chain.cuts({400, 800}), (std::vector<size_t>{layers[0], layers[2], layers[4]}));
  EXPECT_EQ(chain.cuts({401, 10000}), (std::vector<size_t>{layers[3]}));
}

TEST(GradientCuts, ASharedParameterCountsWhereItIsUsedFirst) {
  Chain chain;
  const ValueId shared = chain.parameter(100);
  const size_t first = chain.layer(shared);
  chain.layer(chain.parameter(10));
  chain.layer(shared);
  EXPECT_EQ(chain.cuts({400, 400}), std::vector<size_t>{first});
}

TEST(GradientCuts, OnlyParametersThatAutogradFollowsCount) {
  Chain chain;
  chain.layer(chain.input(false, {100}));
  chain.layer(chain.input(true, {100}, false));
  EXPECT_TRUE(chain.cuts({40, 40}).empty());
}

TEST(GradientCuts, WhatAParentHasIsLeftAsItIs) {
  Chain chain;
  const size_t parents = chain.layer(chain.parameter(100));
  const size_t own = chain.layer(chain.parameter(100));
  EXPECT_EQ(chain.cuts({400, 400}, static_cast<uint32_t>(parents + 1)), std::vector<size_t>{own});
}

}  // namespace
}  // namespace kintsugi::passes
