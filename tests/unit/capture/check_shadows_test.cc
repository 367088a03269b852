#include "capture/check_shadows.h"

#include "unit/capture/frames.h"
#include "unit/capture/torch_fakes.h"

namespace kintsugi::capture {
namespace {

using ir::Op;
using ir::Operand;
using ir::TypeKind;
using test::inFrame;
using test::localOf;
using test::run;
using test::value;

struct Fixture {
  ConstantPool constants;
  FrozenObjects frozen;
  guard::Document document;
  KnownSources sources{document.sources.nodes};
  RestoredFrames restored;
  VirtualTable virtuals;
  test::FakeLog tensors;
  Instr instr{};

  std::string problem(const ShadowFrame& frame) const {
    return shadowProblem({constants, frozen, sources, restored, virtuals, document.trace, tensors}, frame,
                         *frame.act, instr);
  }
  // What is wrong with the only argument of a function if `shadow` describes it.
  std::string with(Shadow shadow, const char* argument) {
    std::string said;
    inFrame(("(lambda a: grab())(" + std::string(argument) + ")").c_str(), [&](ShadowFrame& frame) {
      frame.locals = {shadow};
      said = problem(frame);
    });
    return said;
  }
  Shadow source(PyObject* object) {
    const auto found = sources.find({guard::SourceKind::kArg, ir::kNone, nullptr, next_++}, 0);
    sources.append(found, {}, object);
    return Shadow::source(found.id);
  }
  ir::ValueId valueOf(Op op, TypeKind kind, std::vector<Operand> operands = {}) {
    const ir::Type type{kind, ir::kNone};
    const size_t at = document.trace.append(op, operands, {&type, 1}, ir::kNone);
    return document.trace.code[at].firstResult;
  }
  ir::ValueId operatorOf(const char* name, std::vector<Operand> operands) {
    const ir::ValueId made = valueOf(Op::kAten, TypeKind::kTensor, std::move(operands));
    document.trace.opNames.emplace_back(name);
    document.trace.code.back().opName = static_cast<uint32_t>(document.trace.opNames.size() - 1);
    return made;
  }

 private:
  int64_t next_ = 0;
};

TEST(ShadowCheck, FindsConstantsThatCanChange) {
  Fixture f;
  for (const char* plain : {"1", "'a'", "None", "int", "(1, 'b')", "frozenset([2])", "len", "range(3)"})
    EXPECT_EQ(f.with(Shadow::constant(), plain), "") << plain;
  for (const char* other : {"[]", "{}", "set()", "bytearray()", "(1, [])", "((), ({},))"})
    EXPECT_EQ(f.with(Shadow::constant(), other).find("local 0 holds "), 0U) << other;
  run("pinned = [1]");
  EXPECT_NE(f.with(Shadow::constant(), "pinned"), "");
  f.constants.add(value("pinned").get());
  EXPECT_EQ(f.with(Shadow::constant(), "pinned"), "");
  EXPECT_EQ(f.with(Shadow::constant(), "(pinned, 2)"), "");
  run("froze = [2]");
  f.frozen.add(value("froze").get());
  EXPECT_EQ(f.with(Shadow::constant(), "froze"), "");
}

TEST(ShadowCheck, ComparesSourcesByIdentityAndPlainOnesByTypeAndValue) {
  Fixture f;
  run("kept, other = [1], [1]");
  const Shadow list = f.source(value("kept").get());
  EXPECT_EQ(f.with(list, "kept"), "");
  EXPECT_EQ(f.with(list, "other"), "local 0 holds list: another object than source $0");
  const pyapi::Ref<> number = value("10 ** 20");
  const Shadow plain = f.source(number.get());
  EXPECT_EQ(f.with(plain, "10 ** 20"), "");
  EXPECT_NE(f.with(plain, "1e20"), "");
  EXPECT_NE(f.with(Shadow::source(7), "kept"), "");  // there is none
}

TEST(ShadowCheck, AsksNumbersOfTheRunForTheirTypeAlone) {
  Fixture f;
  const Shadow whole = Shadow::value(f.valueOf(Op::kInput, TypeKind::kInt));
  EXPECT_EQ(f.with(whole, "3"), "");
  EXPECT_EQ(f.with(whole, "3.0"), "local 0 holds float: something else than value %0");
  EXPECT_EQ(f.with(Shadow::value(f.valueOf(Op::kInput, TypeKind::kFloat)), "3.0"), "");
  EXPECT_EQ(f.with(Shadow::value(f.valueOf(Op::kInput, TypeKind::kBool)), "True"), "");
  EXPECT_NE(f.with(Shadow::value(f.valueOf(Op::kInput, TypeKind::kObject)), "True"), "");
  EXPECT_NE(f.with(Shadow::value(99), "3"), "");
}

TEST(ShadowCheck, FollowsATensorThroughWhatWritesToIt) {
  run("class Tensor: pass\nx, y = Tensor(), Tensor()");
  Fixture f;
  const pyapi::Ref<> x = value("x"), y = value("y");
  const ir::ValueId first = f.valueOf(Op::kAten, TypeKind::kTensor),
                    second = f.valueOf(Op::kAten, TypeKind::kTensor);
  f.document.trace.opNames.emplace_back("aten.rand.default");
  f.tensors.values = {{x.get(), first}, {y.get(), second}};
  EXPECT_EQ(f.with(Shadow::value(first), "x"), "");
  EXPECT_NE(f.with(Shadow::value(first), "y"), "");
  f.tensors.values[x.get()] =
      f.operatorOf("aten.add_.Tensor", {Operand::value(first), Operand::value(second)});
  EXPECT_EQ(f.with(Shadow::value(first), "x"), "");
  EXPECT_NE(f.with(Shadow::value(second), "x"), "");
  f.tensors.values[y.get()] = f.operatorOf("aten.mul.out", {Operand::value(first), Operand::value(second)});
  EXPECT_EQ(f.with(Shadow::value(second), "y"), "");
  EXPECT_NE(f.with(Shadow::value(first), "y"), "");
  const std::vector<Operand> both = {Operand::value(second), Operand::value(first)};
  const Operand list = f.document.trace.listOperand(both);
  f.tensors.values[y.get()] = f.operatorOf("aten.broadcast_tensors.default", {list});
  EXPECT_EQ(f.with(Shadow::value(second), "y"), "");
  EXPECT_NE(f.with(Shadow::value(second), "1"), "");  // no tensor
  run("del Tensor, x, y");
}

TEST(ShadowCheck, KnowsInputsByTheirSourcesAndRestoredTensors) {
  run("class Tensor: pass\nx = Tensor()");
  Fixture f;
  const pyapi::Ref<> x = value("x");
  const Shadow source = f.source(x.get());
  const ir::ValueId input = f.valueOf(Op::kInput, TypeKind::kTensor, {Operand::source(source.sourceId())});
  EXPECT_EQ(f.with(Shadow::value(input), "x"), "");
  EXPECT_NE(f.with(Shadow::value(input), "Tensor()"), "");
  const ir::ValueId again = f.valueOf(Op::kGuardTrue, TypeKind::kTensor);
  EXPECT_NE(f.with(Shadow::value(again), "x"), "");
  f.restored.addTensor(again, x.get());
  EXPECT_EQ(f.with(Shadow::value(again), "x"), "");
  run("del Tensor, x");
}

TEST(ShadowCheck, ComparesVirtualObjectsByIdentity) {
  Fixture f;
  run("made, other = [], []");
  const Shadow made = f.virtuals.add(VirtualKind::kList, value("made").get());
  EXPECT_EQ(f.with(made, "made"), "");
  EXPECT_EQ(f.with(made, "other").find("local 0 holds list: another object than virtual "), 0U);
  EXPECT_NE(f.with(Shadow::virt(42), "made"), "");
}

TEST(ShadowCheck, LooksAtEachSlotOfTheStack) {
  Fixture f;
  inFrame("(lambda a: grab())(1)", [&](ShadowFrame& frame) {
    frame.locals = {Shadow::constant()};
    PyObject** stack = pyapi::stackBase(frame.act->frame);
    size_t called = 0;  // the slot of the function that is being called
    while (stack[called] == nullptr) ++called;
    for (size_t i = 0; i <= called; ++i) frame.push(i == called ? Shadow::constant() : Shadow::null());
    EXPECT_EQ(f.problem(frame), "");
    frame.top() = Shadow::null();
    EXPECT_NE(f.problem(frame).find(": a shadow or an object is missing"), std::string::npos);
    frame.handled = Shadow::constant();  // only exceptions have no shadow then
    EXPECT_NE(f.problem(frame), "");
    frame.locals = {Shadow::null()};
    EXPECT_EQ(f.problem(frame), "local 0 holds int: a shadow or an object is missing");
  });
}

}  // namespace
}  // namespace kintsugi::capture
