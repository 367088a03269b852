#include "capture/torch_values.h"

#include "unit/capture/torch_fakes.h"

namespace kintsugi::capture {
namespace {

using test::run;
using test::value;
using torchapi::DrainResult;
using torchapi::MetaLevel;

struct Fixture {
  Fixture() { run("class Tensor: pass\nclass Wrapper(Tensor): pass"); }
  ~Fixture() { run("globals().pop('Tensor', None)"); }
  VirtualTable virtuals;
  test::FakeObjects known{virtuals};
  test::FakeTuples tuples{virtuals};
  test::FakeLog ops;
  TorchCalls calls;
  TorchValues values{known, tuples, ops, calls, virtuals};
  DrainResult drained;

  std::optional<Shadow> shadowOf(const char* expression) {
    return values.shadowOf(value(expression).get(), drained);
  }
  void gave(ir::TypeKind kind, int64_t number) { drained.scalars.push_back({5, kind, number, 0.0}); }
};

TEST(TorchValues, AcceptTensorsNumbersAndSequencesOfThem) {
  Fixture f;
  const Shadow constant = Shadow::constant();
  EXPECT_TRUE(f.values.accepts(Shadow::value(1), value("Tensor()").get()));
  EXPECT_TRUE(f.values.accepts(constant, value("(1, [2.0, None], 'text', slice(1))").get()));
  EXPECT_TRUE(f.values.accepts(constant, value("int").get()));
  EXPECT_FALSE(f.values.accepts(constant, value("len").get()));
  EXPECT_FALSE(f.values.accepts(constant, value("(lambda: 1)").get()));
  EXPECT_FALSE(f.values.accepts(constant, value("[{}]").get()));
  EXPECT_FALSE(f.values.accepts(Shadow::source(1), value("object()").get()));
}

TEST(TorchValues, LookIntoSequencesOfTheTrace) {
  Fixture f;
  const pyapi::Ref<> list = value("[1, {}]"), dict = value("{}");
  const Shadow made = f.virtuals.add(VirtualKind::kList, list.get());
  f.virtuals[made].parts = {Shadow::constant()};
  EXPECT_TRUE(f.values.accepts(made, list.get()));
  f.virtuals[made].parts.push_back(f.virtuals.add(VirtualKind::kDict, dict.get()));
  EXPECT_FALSE(f.values.accepts(made, list.get()));
}

TEST(TorchValues, KnowTheTensorsOfTheLog) {
  Fixture f;
  const pyapi::Ref<> tensor = value("Tensor()");
  EXPECT_FALSE(f.values.shadowOf(tensor.get(), f.drained).has_value());  // from nowhere
  f.ops.bind(tensor.get(), 3, MetaLevel::kFull);
  EXPECT_EQ(f.values.shadowOf(tensor.get(), f.drained), Shadow::value(3));
}

TEST(TorchValues, DoNotKnowZerosWithoutMemory) {
  Fixture f;
  run("zeros = Tensor()\nzeros.zero = True");
  const pyapi::Ref<> tensor = value("zeros");
  f.ops.bind(tensor.get(), 3, MetaLevel::kFull);
  EXPECT_FALSE(f.values.shadowOf(tensor.get(), f.drained).has_value());  // the trace's would have some
}

TEST(TorchValues, TakeAWrapperForAnObjectAroundAKnownTensor) {
  Fixture f;
  run("inside = Tensor()\nwrapper = Tensor()\nwrapper.inner = inside");
  const pyapi::Ref<> wrapper = value("wrapper"), inside = value("inside");
  EXPECT_FALSE(f.values.shadowOf(wrapper.get(), f.drained).has_value());
  f.ops.bind(inside.get(), 3, MetaLevel::kFull);
  const auto made = f.values.shadowOf(wrapper.get(), f.drained);
  ASSERT_TRUE(made && made->isVirtual());
  EXPECT_EQ(f.virtuals[*made].kind, VirtualKind::kOpaque);
  EXPECT_EQ(f.values.shadowOf(wrapper.get(), f.drained), made);  // the same object again
}

TEST(TorchValues, TellWhichTensorsHaveFixedSizes) {
  Fixture f;
  const pyapi::Ref<> fixed = value("Tensor()"), open = value("Tensor()"), other = value("Tensor()");
  f.ops.bind(fixed.get(), 3, MetaLevel::kFull);
  f.ops.bind(open.get(), 4, MetaLevel::kRank);
  EXPECT_TRUE(f.values.hasStaticMeta(Shadow::value(3), fixed.get()));
  EXPECT_FALSE(f.values.hasStaticMeta(Shadow::value(4), open.get()));
  EXPECT_TRUE(f.values.hasStaticMeta(Shadow::source(1), fixed.get()));  // by the tensor
  EXPECT_FALSE(f.values.hasStaticMeta(Shadow::source(1), other.get()));
}

TEST(TorchValues, KnowANumberThatTheLogHasGiven) {
  Fixture f;
  f.gave(ir::TypeKind::kInt, 7);
  EXPECT_EQ(f.shadowOf("7"), Shadow::value(5));
  EXPECT_FALSE(f.shadowOf("8").has_value());
  EXPECT_FALSE(f.shadowOf("7.0").has_value());
  EXPECT_FALSE(f.shadowOf("10 ** 30").has_value());
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

TEST(TorchValues, DoNotMistakeATruthForANumber) {
  Fixture f;
  f.gave(ir::TypeKind::kInt, 1);
  EXPECT_FALSE(f.shadowOf("True").has_value());
  Fixture truth;
  truth.gave(ir::TypeKind::kBool, 1);
  EXPECT_EQ(truth.shadowOf("True"), Shadow::value(5));
  EXPECT_FALSE(truth.shadowOf("False").has_value());
  EXPECT_FALSE(truth.shadowOf("1").has_value());
}

TEST(TorchValues, TakeOtherNumbersForConstantsWhereMetadataIsPinned) {
  Fixture f;
  EXPECT_FALSE(f.shadowOf("7").has_value());
  f.calls.setConstantNumbers(true);
  EXPECT_EQ(f.shadowOf("7"), Shadow::constant());
  f.gave(ir::TypeKind::kInt, 9);  // then it may hang on data
  EXPECT_FALSE(f.shadowOf("7").has_value());
}

TEST(TorchValues, WantTheNumberThatWasReadToBeTheResult) {
  Fixture f;
  const pyapi::Ref<> seven = value("7"), list = value("[7]");
  EXPECT_TRUE(TorchValues::explainsNumbers(list.get(), f.drained));
  f.gave(ir::TypeKind::kInt, 7);
  EXPECT_TRUE(TorchValues::explainsNumbers(seven.get(), f.drained));
  EXPECT_FALSE(TorchValues::explainsNumbers(list.get(), f.drained));
  f.gave(ir::TypeKind::kInt, 8);  // it has decided something
  EXPECT_FALSE(TorchValues::explainsNumbers(seven.get(), f.drained));
}

TEST(TorchValues, ExplainSequencesItemByItem) {
  Fixture f;
  run("tensor = Tensor()");
  const pyapi::Ref<> tensor = value("tensor"), list = value("[tensor, None]"), tuple = value("(tensor,)"),
                     unknown = value("[tensor, object()]"), size = value("()");
  f.ops.bind(tensor.get(), 3, MetaLevel::kFull);
  const auto made = f.values.shadowOf(list.get(), f.drained);
  ASSERT_TRUE(made && made->isVirtual());
  EXPECT_EQ(f.virtuals[*made].parts, (Shadows{Shadow::value(3), Shadow::constant()}));
  const auto pair = f.values.shadowOf(tuple.get(), f.drained);
  EXPECT_EQ(f.virtuals[*pair].parts, (Shadows{Shadow::value(3)}));
  EXPECT_FALSE(f.values.shadowOf(unknown.get(), f.drained).has_value());
  EXPECT_EQ(f.values.shadowOf(size.get(), f.drained), Shadow::constant());
}

}  // namespace
}  // namespace kintsugi::capture
