// Rows of ops/operators.def, found by name.
#include "ops/operator.h"

#include <gtest/gtest.h>

#include <set>

namespace kintsugi::ops {
namespace {

TEST(Operator, FindsEachByItsName) {
  std::set<std::string_view> names;
  for (const OperatorInfo& row : operators().subspan(1)) {
    EXPECT_EQ(find(row.name), row.id) << row.name;
    EXPECT_EQ(infoOf(row.id).name, row.name);
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " has two rows";
    EXPECT_NE(row.name.find('.'), row.name.rfind('.')) << row.name << " is no namespace.name.overload";
  }
  EXPECT_EQ(names.size(), kOperatorCount - 1);
  EXPECT_EQ(find("aten.add"), Operator::kUnknown);
  EXPECT_EQ(find(""), Operator::kUnknown);
  EXPECT_EQ(infoOf("aten.no_such.default").id, Operator::kUnknown);
}

TEST(Operator, KnowsAttributes) {
  EXPECT_TRUE(has(Operator::kAddTensor, Trait::kFresh));
  EXPECT_FALSE(has(Operator::kReshape, Trait::kFresh));
  EXPECT_EQ(infoOf("aten.dropout.default").quietIfZero, (std::array<int8_t, 2>{1, 2}));
  EXPECT_EQ(infoOf(Operator::kRelu).quietIfZero, (std::array<int8_t, 2>{-1, -1}));
  EXPECT_EQ(infoOf(Operator::kLinear).product.added, 2);
  EXPECT_EQ(infoOf(Operator::kRelu).product.operands, 0);
  EXPECT_EQ(infoOf(Operator::kGelu).activation.text, "tanh");
  EXPECT_EQ(infoOf(Operator::kCat).layout, LayoutRole::kSame);
}

TEST(Operator, KnowsPackets) {
  EXPECT_TRUE(has("aten.nonzero.default", Trait::kSizesOfData));
  EXPECT_TRUE(has("aten.nonzero.out", Trait::kSizesOfData));
  EXPECT_FALSE(has("aten.nonzero_static.default", Trait::kSizesOfData));
  EXPECT_TRUE(has("aten.empty.memory_format", Trait::kMakesEmpty));
}

TEST(Operator, FormsInPlace) {
  EXPECT_TRUE(isInPlace("aten.add_.Tensor"));
  EXPECT_FALSE(isInPlace("aten.add.Tensor"));
  EXPECT_FALSE(isInPlace("aten._softmax.default"));
  EXPECT_FALSE(isInPlace("aten"));
  EXPECT_EQ(newForm("aten.add_.Tensor"), "aten.add.Tensor");
  EXPECT_EQ(newForm("aten.pow_.Scalar"), "aten.pow.Tensor_Scalar");
  EXPECT_EQ(newForm("aten.add.Tensor"), "");
  EXPECT_EQ(formOf("aten.relu_.default"), Operator::kRelu);
  EXPECT_EQ(formOf("aten.relu.default"), Operator::kRelu);
  EXPECT_EQ(formOf("mine.thing_.default"), Operator::kUnknown);
}

TEST(Operator, KnowsCollectives) {
  EXPECT_TRUE(isCollective("_c10d_functional.wait_tensor.default"));
  EXPECT_TRUE(isCollective("c10d.allreduce_.default"));
  EXPECT_FALSE(isCollective("aten.add.Tensor"));
  EXPECT_FALSE(isCollective("c10dish.add.default"));
}

TEST(Operator, ReadsForeachNames) {
  ForeachName name;
  ASSERT_TRUE(parseForeach("aten._foreach_add_.List", name));
  EXPECT_EQ(name.name, "add");
  EXPECT_EQ(name.overload, "List");
  EXPECT_TRUE(name.inPlace);
  EXPECT_EQ(findForeach(name.name), Operator::kAddTensor);
  EXPECT_EQ(findForeach("norm"), Operator::kUnknown);
  EXPECT_EQ(findForeach(""), Operator::kUnknown);
  EXPECT_FALSE(parseForeach("aten.add.Tensor", name));
}

}  // namespace
}  // namespace kintsugi::ops
