#include "capture/guards.h"

#include "pyapi/object_layout.h"
#include "pyapi/types.h"
#include "unit/capture/fakes.h"
#include "unit/capture/read_fakes.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using ir::Operand;
using test::run;
using test::value;

struct FakeSizes final : OpenSizes {
  uint64_t openSizes(ir::SourceId, PyObject*) override { return 0; }
  uint64_t openSizesOf(ir::ValueId) override { return 0; }
  void guardRanges(ir::SourceId, PyObject*) override {}
  bool pinMeta(Shadow, PyObject*) override { return true; }
  void forgetMeta(ir::ValueId) override {}
};

struct FakeClasses final : TraceClasses {
  std::vector<PyObject*> asked;
  bool bases = false;  // all classes are the trace's
  void refuseConstant(PyObject* object) override { asked.push_back(object); }
  bool guardBases(PyTypeObject*) override { return bases; }
};

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeSequences sequences;
  test::FakeReads stale;
  test::FakeFrames calls;
  test::FakeVarying varying;
  FakeSizes sizes;
  FakeClasses classes;
  test::FakeHost host;
  AliasList aliases;
  GuardBlocks blocks;
  BreakLog log;
  guard::Document document;
  ConstantPool constants;
  TraceFacts facts;
  ExceptionLog exceptions;
  FrozenObjects frozen;
  CurrentInstruction instruction;
  KeptObjects kept;
  torchapi::OpRecorder ops;
  Overlays overlays;
  SourceSet sameTensors;
  KnownSources sources{document.sources.nodes};
  TorchCalls torchCalls;
  VirtualTable virtuals;
  FrameStack frames;
  Pauses pauses;
  GuardWriter writer{document, blocks};
  DeadObjects dead{virtuals, pauses};
  FinalizedObjects finalized{{kept, sources, virtuals, exceptions, dead, pauses, log}};
  FinalizerTracker finalizers{
      {log, constants, sources, kept, virtuals, overlays, frames, instruction, dead, pauses}, host};
  test::FakeContainers containers{overlays};
  test::FakeSnapshots snapshots{virtuals, document.trace};
  test::FakeWriter trace{document.trace};
  Guards::Roles roles{breaks, sequences, containers, snapshots, trace, stale, calls, varying, sizes, classes};
  Guards guards{roles,     aliases,     blocks,  constants,   document, facts,
                finalized, finalizers,  frozen,  instruction, kept,     ops,
                overlays,  sameTensors, sources, torchCalls,  virtuals, writer};

  Shadow argument(PyObject* object, int64_t index = 0) {
    return guards.readSource(SourceKind::kArg, ir::kNone, nullptr, index, object);
  }
  // The kinds of the guards that were written since the last time.
  std::vector<GuardKind> asked() {
    std::vector<GuardKind> kinds;
    for (; seen_ < document.guards.guards.size(); ++seen_)
      kinds.push_back(document.guards.guards[seen_].kind);
    return kinds;
  }
  ir::ValueId number(ir::TypeKind kind) {
    const size_t at = document.trace.append(Op::kCallPure, std::vector<Operand>{},
                                            std::vector<ir::Type>{{kind, ir::kNone}}, ir::kNone);
    return document.trace.code[at].firstResult;
  }
  bool endedWith(diag::Code code) const { return breaks.ends == std::vector<diag::Code>{code}; }

 private:
  size_t seen_ = 0;
};

TEST(Guards, ReadAPathOnce) {
  Fixture f;
  const pyapi::Ref<> object = value("object()"), other = value("object()");
  const Shadow first = f.argument(object.get());
  EXPECT_EQ(f.argument(object.get()), first);
  EXPECT_NE(f.argument(other.get(), 1), first);
  EXPECT_EQ(f.document.sources.nodes.size(), 2U);
  EXPECT_TRUE(f.kept.contains(object.get()));
  EXPECT_TRUE(f.asked().empty());  // what is only passed along is not guarded
}

TEST(Guards, EndWhereAPathLeadsToAnotherObject) {
  Fixture f;
  f.argument(value("[1]").get());
  f.argument(value("[2]").get());
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Guards, TakeAnEqualNumberForTheSame) {
  Fixture f;
  const pyapi::Ref<> one = value("10 ** 20"), two = value("10 ** 19 * 10"), text = value("10 ** 21");
  const Shadow first = f.argument(one.get());
  EXPECT_EQ(f.argument(two.get()), first);  // C code has computed it anew
  EXPECT_TRUE(f.breaks.live);
  f.argument(text.get());
  EXPECT_FALSE(f.breaks.live);
}

TEST(Guards, SayThatTwoPathsLeadToOneObject) {
  Fixture f;
  const pyapi::Ref<> object = value("[1]");
  const Shadow first = f.argument(object.get());
  EXPECT_EQ(f.argument(object.get(), 1), first);
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kSame}));
}

TEST(Guards, TellWhatIsReadFromWhatTheTraceHasWritten) {
  Fixture f;
  const pyapi::Ref<> written = value("[1]"), list = value("[2]"), dict = value("{}");
  f.argument(written.get());
  f.overlays.make(written.get());
  f.argument(list.get(), 1);
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kNotSame}));
  f.argument(dict.get(), 2);
  EXPECT_TRUE(f.asked().empty());  // its type says so
}

TEST(Guards, FindAnObjectAgainThatTheTraceHasHandedOut) {
  Fixture f;
  const pyapi::Ref<> list = value("[]");
  const Shadow made = f.virtuals.add(VirtualKind::kList, list.get());
  f.virtuals[made].value = f.number(ir::TypeKind::kObject);
  EXPECT_EQ(f.argument(list.get()), made);
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kSame}));
}

TEST(Guards, EndIfAnObjectOfTheTraceIsFoundThatNobodyHasGot) {
  Fixture f;
  const pyapi::Ref<> list = value("[]"), tuple = value("(1, 2)");
  f.virtuals.add(VirtualKind::kTuple, tuple.get());
  EXPECT_TRUE(f.argument(tuple.get()).isSource());  // an equal one would do as well
  f.virtuals.add(VirtualKind::kList, list.get());
  f.argument(list.get(), 1);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Guards, MakeANumberThatVariesAValue) {
  Fixture f;
  f.varying.numbers = true;
  const pyapi::Ref<> number = value("7"), large = value("2 ** 80");
  EXPECT_TRUE(f.argument(number.get()).isValue());
  EXPECT_TRUE(f.argument(large.get(), 1).isSource());  // it has more than 64 bits
  f.blocks.setPending(true);
  EXPECT_TRUE(f.argument(number.get(), 2).isSource());  // a value once the block is written
  ASSERT_EQ(f.aliases.size(), 1U);
  EXPECT_TRUE(f.aliases[0].second.isNull());
}

TEST(Guards, PinPlainObjectsByValueAndOthersByIdentity) {
  Fixture f;
  const pyapi::Ref<> text = value("'some text'"), list = value("[]");
  Shadow first = f.argument(text.get()), second = f.argument(list.get(), 1);
  EXPECT_TRUE(f.guards.pin(first, text.get()));
  EXPECT_TRUE(first.isConst());
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kEquals}));
  EXPECT_TRUE(f.guards.pin(second, list.get()));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kIs}));
  EXPECT_TRUE(f.guards.pin(first, text.get()));
  EXPECT_TRUE(f.asked().empty());
}

TEST(Guards, PinANumberOfTheTraceOnce) {
  Fixture f;
  const ir::ValueId number = f.number(ir::TypeKind::kInt);
  const pyapi::Ref<> seven = value("7");
  Shadow shadow = Shadow::value(number);
  EXPECT_TRUE(f.guards.pin(shadow, seven.get()));
  EXPECT_TRUE(shadow.isConst());
  ASSERT_EQ(f.trace.written.size(), 1U);
  EXPECT_EQ(f.trace.written[0].op, Op::kGuardValue);
  EXPECT_EQ(f.trace.written[0].operands[1].i, 7);
  Shadow again = Shadow::value(number);
  EXPECT_TRUE(f.guards.pin(again, seven.get()));
  EXPECT_EQ(f.trace.written.size(), 1U);
}

TEST(Guards, EndAtANumberWhereNoRunMayLeave) {
  Fixture f;
  f.snapshots.rebuildable = false;
  EXPECT_FALSE(f.guards.guardScalar(f.number(ir::TypeKind::kInt), value("7").get()));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0103));
  Fixture branch;
  branch.snapshots.rebuildable = false;
  EXPECT_FALSE(branch.guards.guardTruth(branch.number(ir::TypeKind::kBool), true));
  EXPECT_TRUE(branch.endedWith(diag::Code::KTG0103));
  EXPECT_TRUE(branch.trace.written.empty());
}

TEST(Guards, DecideOnTheTruthOfANumberInEachRun) {
  Fixture f;
  const Shadow number = Shadow::value(f.number(ir::TypeKind::kInt));
  EXPECT_TRUE(f.guards.pinTruth(number, value("0").get()));
  ASSERT_EQ(f.trace.written.size(), 2U);
  EXPECT_EQ(f.trace.written[0].op, Op::kToBool);
  EXPECT_EQ(f.trace.written[1].op, Op::kGuardFalse);
}

TEST(Guards, TakeTheLengthOfAContainerForItsTruth) {
  Fixture f;
  const pyapi::Ref<> list = value("[1]");
  EXPECT_TRUE(f.guards.pinTruth(f.argument(list.get()), list.get()));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kType, GuardKind::kLength}));
  f.varying.container = list.get();  // of its length nothing is guarded
  EXPECT_TRUE(f.guards.pinTruth(f.argument(list.get()), list.get()));
  EXPECT_EQ(f.trace.written.at(0).op, Op::kCallKnown);  // each run asks
  EXPECT_EQ(f.stale.calls, "flush ");
}

TEST(Guards, EnterBoolOrLenOfAClassInPython) {
  run("class Sized:\n"
      "  def __len__(self): return 1\n"
      "sized = Sized()\n");
  Fixture f;
  const pyapi::Ref<> object = value("sized");
  EXPECT_TRUE(f.guards.pinTruth(f.argument(object.get()), object.get()));
  ASSERT_EQ(f.calls.expected.size(), 1U);
  EXPECT_EQ(f.calls.expected[0].function.get(), value("Sized.__len__").get());
  EXPECT_TRUE(f.calls.expected[0].pinResult);
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kType, GuardKind::kTypeVersion}));
}

TEST(Guards, GuardTheLengthThatAContainerHadAtEntry) {
  Fixture f;
  const pyapi::Ref<> list = value("[1, 2, 3]");
  const Shadow shadow = f.argument(list.get());
  f.overlays.make(list.get()).overlay.tail = {Shadow::value(1), Shadow::value(2)};
  EXPECT_TRUE(f.guards.pinLength(shadow, list.get()));
  EXPECT_EQ(f.document.guards.guards.back().number, 1);
  f.overlays.find(list.get())->dirty = true;
  EXPECT_FALSE(f.guards.pinLength(shadow, list.get()));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Guards, GuardTheKeysThatADictHadAtEntry) {
  Fixture f;
  const pyapi::Ref<> dict = value("{'a': 1, 'b': 2}"), key = value("'b'");
  const Shadow shadow = f.argument(dict.get());
  Overlay& overlay = f.overlays.make(dict.get()).overlay;
  overlay.fresh = value("{'b': None}");
  EXPECT_TRUE(f.guards.pinKeys(shadow, dict.get()));
  EXPECT_EQ(f.document.guards.guards.back().kind, GuardKind::kKeys);
  EXPECT_EQ(PyTuple_Size(f.constants.at(f.document.guards.guards.back().key)), 1);
  overlay.noteDeleted(value("'c'").get());  // what the order was is not known any more
  EXPECT_FALSE(f.guards.pinKeys(shadow, dict.get()));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Guards, GuardTheAnswerOfIs) {
  Fixture f;
  const pyapi::Ref<> one = value("[1]"), two = value("[2]"), made = value("[3]");
  const Shadow a = f.argument(one.get()), b = f.argument(two.get(), 1);
  EXPECT_TRUE(f.guards.pinIdentity(a, one.get(), b, two.get()));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kNotSame}));
  EXPECT_TRUE(f.guards.pinIdentity(a, one.get(), Shadow::constant(), Py_None));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kType}));  // one that is no None
  const Shadow fresh = f.virtuals.add(VirtualKind::kList, made.get());
  EXPECT_TRUE(f.guards.pinIdentity(a, one.get(), fresh, made.get()));
  EXPECT_TRUE(f.asked().empty());  // made in this trace, so it can't be an older one
  EXPECT_TRUE(f.guards.pinIdentity(a, one.get(), Shadow::constant(), one.get()));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kIs}));
}

TEST(Guards, AskCCodeForAnAnswerBeforeTheInstructionAlone) {
  Fixture f;
  EXPECT_TRUE(f.guards.pinAnswer("truth", {Operand::source(0)}, Py_True));
  EXPECT_EQ(f.stale.calls, "flush ");
  EXPECT_EQ(f.document.guards.guards.back().kind, GuardKind::kEquals);
  f.instruction.setExecuted(true);
  EXPECT_FALSE(f.guards.pinAnswer("truth", {Operand::source(0)}, Py_True));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0103));
}

TEST(Guards, PinContainersOfTheTracePartByPart) {
  Fixture f;
  const pyapi::Ref<> text = value("'some text'"), list = value("['some text', 1]");
  const Shadow part = f.argument(text.get());
  const Shadow made = f.virtuals.add(VirtualKind::kList, list.get());
  f.virtuals[made].parts = {part, Shadow::constant()};
  Shadow shadow = made;
  EXPECT_TRUE(f.guards.canPinDeep(shadow, list.get()));
  EXPECT_TRUE(f.guards.pinDeep(shadow, list.get()));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kEquals}));
  EXPECT_TRUE(f.virtuals[made].parts[0].isConst());
}

TEST(Guards, DoNotPinAnOldDictAsAWhole) {
  Fixture f;
  const pyapi::Ref<> dict = value("{}");
  Shadow shadow = f.argument(dict.get());
  EXPECT_FALSE(f.guards.canPinDeep(shadow, dict.get()));
  EXPECT_FALSE(f.guards.tryPinDeep(shadow, dict.get()));
  EXPECT_TRUE(f.breaks.live);
  EXPECT_FALSE(f.guards.pinDeep(shadow, dict.get()));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0302));
}

TEST(Guards, AskForTheVersionOfClassesThatMayChange) {
  run("class Own: pass");
  Fixture f;
  f.guards.guardTypeVersion(&PyLong_Type);
  EXPECT_TRUE(f.asked().empty());
  f.guards.guardTypeVersion(test::typeNamed("Own"));
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kTypeVersion}));
  f.classes.bases = true;  // a class of the trace: its bases are guarded
  f.guards.guardTypeVersion(test::typeNamed("Own"));
  EXPECT_TRUE(f.asked().empty());
}

TEST(Guards, KeepVersionsThatAHiddenChangeRenews) {
  run("class Own: pass");
  Fixture f;
  f.guards.guardTypeVersion(test::typeNamed("Own"));
  const int64_t before = f.document.guards.guards.back().number;
  f.guards.keepTypeVersions([] { run("Own.hidden = 1"); });
  const int64_t after = f.document.guards.guards.back().number;
  EXPECT_NE(after, before);
  EXPECT_EQ(after, static_cast<int64_t>(*pyapi::typeVersionWord(test::typeNamed("Own"))));
}

TEST(Guards, AskWhetherAFunctionMayBeAConstant) {
  run("def made(): pass");
  Fixture f;
  const pyapi::Ref<> function = value("made");
  f.guards.constId(function.get());
  f.guards.constId(function.get());
  f.guards.constId(Py_None);
  EXPECT_EQ(f.classes.asked, (std::vector<PyObject*>{function.get()}));
  f.guards.pinFunction(function.get());
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kFunction}));  // its code may be replaced
}

TEST(Guards, KnowWhatDependsOnASteps) {
  Fixture f;
  const pyapi::Ref<> old = value("[1]"), given = value("[2]"), part = value("[3]");
  const Shadow argument = f.argument(old.get());
  const Shadow result = f.guards.readSource(SourceKind::kValue, ir::kNone, nullptr,
                                            f.number(ir::TypeKind::kObject), given.get());
  const Shadow inner = f.guards.readSource(SourceKind::kListItem, result.sourceId(), nullptr, 0, part.get());
  EXPECT_FALSE(f.guards.comesFromStep(argument));
  EXPECT_TRUE(f.guards.isArgument(argument));
  EXPECT_TRUE(f.guards.comesFromStep(result));
  EXPECT_TRUE(f.guards.comesFromStep(inner));
  EXPECT_TRUE(f.guards.isArgument(inner));  // another object in each run
  EXPECT_TRUE(f.guards.comesFromStep(Shadow::value(1)));
  EXPECT_FALSE(f.guards.comesFromStep(Shadow::constant()));
}

TEST(Guards, MakeATensorAnInputOnce) {
  run("class Tensor: pass\ntensor = Tensor()");
  Fixture f;
  const pyapi::Ref<> tensor = value("tensor");
  const Shadow shadow = f.argument(tensor.get());
  ASSERT_TRUE(shadow.isValue());
  EXPECT_EQ(f.trace.written.at(0).op, Op::kInput);
  EXPECT_EQ(f.asked(), (std::vector<GuardKind>{GuardKind::kType, GuardKind::kTensor}));
  EXPECT_EQ(f.argument(tensor.get()), shadow);
  EXPECT_EQ(f.argument(tensor.get(), 1), shadow);  // by another path, under a guard
  EXPECT_EQ(f.trace.written.size(), 1U);
  run("del Tensor");
}

}  // namespace
}  // namespace kintsugi::capture
