#include "capture/lifetimes.h"

#include "pyapi/drop_reference.h"
#include "pyapi/generator.h"
#include "unit/capture/fakes.h"
#include "unit/capture/read_fakes.h"

namespace kintsugi::capture {
namespace {

using guard::SourceKind;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using test::run;
using test::value;

// Answers with numbers that a test can tell. What can't escape ends the recording.
struct FakeSnapshots final : SnapshotMaker {
  explicit FakeSnapshots(BreakLog& recording) : log(recording) {}
  BreakLog& log;
  bool canEscape = true;
  ir::StateId stateBefore() override { return 5; }
  bool operandOf(Shadow, PyObject*, Operand&) override { return false; }
  bool escape(Shadow&, PyObject*) override { return escapeHandled(); }
  bool escapeHandled() override {
    if (!canEscape) log.complete();
    return canEscape;
  }
};

struct FakeCloser final : GeneratorCloser {
  std::vector<PyObject*> closed;
  void closeGenerator(Virtual& generator) override {
    closed.push_back(generator.object.get());
    const pyapi::Ref<> done = pyapi::steal(PyObject_CallMethod(generator.object.get(), "close", nullptr));
    EXPECT_TRUE(static_cast<bool>(done));
  }
};

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeConstants constantIds;
  test::FakeReads reads;
  FakeCloser closer;
  BreakLog log;
  FakeSnapshots snapshots{log};
  GuardBlocks blocks;
  guard::Document document;
  AttributeLog attributes{nullptr};
  ClassVersions classVersions{document, constantIds.pool, attributes};
  KnownSources sources{document.sources.nodes};
  KeptObjects kept;
  VirtualTable virtuals;
  Overlays overlays;
  FrameStack frames;
  CurrentInstruction instruction;
  Pauses pauses;
  ExceptionLog exceptions;
  DeadObjects dead{virtuals, pauses};
  WatchedGenerators watched{virtuals};
  FinalizedObjects finalized{{kept, sources, virtuals, exceptions, dead, pauses, log}};
  GeneratorHolders holders{dead, frames, virtuals, watched};
  Lifetimes lifetimes{{breaks, constantIds, snapshots, reads, closer},
                      blocks,
                      classVersions,
                      constantIds.pool,
                      document,
                      finalized,
                      finalizers,
                      holders,
                      instruction,
                      kept,
                      sources,
                      virtuals,
                      watched};
  FinalizerTracker finalizers{
      {log, constantIds.pool, sources, kept, virtuals, overlays, frames, instruction, dead, pauses},
      lifetimes.host()};

  // As the recorder does with a step's result.
  void track(PyObject* object, ir::ValueId made) {
    const KnownSources::Found found = sources.find({SourceKind::kValue, ir::kNone, nullptr, made}, 0);
    sources.append(found, {SourceKind::kValue, ir::kNone, ir::kNone, made, 0}, object);
    sources.name(object, found.id);
    kept.add(object);
    finalizers.track(object, Shadow::source(found.id));
  }
  // A generator that waits, with the shadow frame that the trace keeps for it.
  uint32_t suspend(PyObject* generator) {
    const Shadow shadow = virtuals.add(VirtualKind::kGenerator, generator);
    Virtual& v = virtuals[shadow];
    v.frame = std::make_unique<ShadowFrame>();
    v.frame->code = pyapi::codeOf(pyapi::frameOf(pyapi::asGenerator(generator)));
    return shadow.virtualId();
  }
  void finishTrace(const Operand& result) {
    document.trace.append(Op::kRet, std::vector<Operand>{result}, std::vector<ir::Type>{}, ir::kNone);
  }
};

void define() {
  run("order = []\n"
      "class Noisy:\n"
      "  def __del__(self): order.append('gone')\n"
      "def quiet(): yield 1\n"
      "def careful():\n"
      "  try: yield 1\n"
      "  finally: order.append('closed')\n"
      "def begun(generator):\n"
      "  next(generator)\n"
      "  return generator\n");
}

TEST(Lifetimes, WatchGeneratorsThatRunCodeWhenTheyAreClosed) {
  define();
  Fixture f;
  const pyapi::Ref<> quiet = value("begun(quiet())"), careful = value("begun(careful())");
  f.lifetimes.watch(f.suspend(quiet.get()));
  EXPECT_TRUE(f.watched.empty());
  const uint32_t id = f.suspend(careful.get());
  f.lifetimes.watch(id);
  EXPECT_EQ(f.watched.ids(), (std::vector<uint32_t>{id}));
}

TEST(Lifetimes, WatchAGeneratorThatHoldsAWatchedOne) {
  define();
  Fixture f;
  const pyapi::Ref<> careful = value("begun(careful())"), quiet = value("begun(quiet())");
  const uint32_t inner = f.suspend(careful.get()), outer = f.suspend(quiet.get());
  f.lifetimes.watch(inner);
  f.virtuals.at(outer).frame->locals = {Shadow::virt(inner)};
  f.lifetimes.watch(outer);
  EXPECT_EQ(f.watched.ids().size(), 2U);
}

TEST(Lifetimes, CloseAGeneratorOnceTheProgramHasDroppedIt) {
  define();
  Fixture f;
  pyapi::Ref<> careful = value("begun(careful())");
  f.lifetimes.watch(f.suspend(careful.get()));
  f.lifetimes.closeDropped();
  EXPECT_TRUE(f.closer.closed.empty());  // somebody holds it
  PyObject* object = careful.get();
  careful.reset();
  f.lifetimes.closeDropped();
  EXPECT_EQ(f.closer.closed, (std::vector<PyObject*>{object}));
  EXPECT_TRUE(test::holds("order == ['closed']"));
  EXPECT_TRUE(f.watched.empty());
}

TEST(Lifetimes, CloseAGeneratorOnceTheProgramHasDroppedWhatHoldsIt) {
  define();
  Fixture f;
  pyapi::Ref<> careful = value("begun(careful())");
  pyapi::Ref<> list = pyapi::steal(Py_BuildValue("[O]", careful.get()));
  pyapi::Ref<> outer = pyapi::steal(Py_BuildValue("(O)", list.get()));
  f.virtuals.add(VirtualKind::kList, list.get());
  f.virtuals.add(VirtualKind::kTuple, outer.get());
  f.lifetimes.watch(f.suspend(careful.get()));
  careful.reset();
  list.reset();
  f.lifetimes.closeDropped();
  EXPECT_TRUE(f.closer.closed.empty());
  outer.reset();
  f.lifetimes.closeDropped();
  EXPECT_EQ(f.closer.closed.size(), 1U);
  EXPECT_TRUE(test::holds("order == ['closed']"));
}

TEST(Lifetimes, EndWhereAnObjectHoldsSeveralGenerators) {
  define();
  Fixture f;
  pyapi::Ref<> a = value("begun(careful())"), b = value("begun(careful())");
  pyapi::Ref<> both = pyapi::steal(Py_BuildValue("[OO]", a.get(), b.get()));
  f.virtuals.add(VirtualKind::kList, both.get());
  f.lifetimes.watch(f.suspend(a.get()));
  f.lifetimes.watch(f.suspend(b.get()));
  a.reset();
  b.reset();
  f.lifetimes.closeDropped();
  EXPECT_TRUE(f.breaks.live);
  both.reset();
  f.lifetimes.closeDropped();
  EXPECT_FALSE(f.breaks.live);
  EXPECT_TRUE(test::holds("order == ['closed', 'closed']"));  // by the release of all objects
}

TEST(Lifetimes, CloseNothingOnceTheRecordingHasEnded) {
  define();
  Fixture f;
  f.lifetimes.watch(f.suspend(value("begun(careful())").get()));
  f.breaks.live = false;
  f.lifetimes.closeDropped();
  EXPECT_TRUE(f.closer.closed.empty());
}

TEST(Lifetimes, WriteAStepThatRunsAFinalizer) {
  define();
  Fixture f;
  f.frames.enter(std::make_unique<ShadowFrame>());
  pyapi::Ref<> noisy = value("Noisy()");
  f.track(noisy.get(), 3);
  noisy.reset();
  f.finalizers.runPending();
  EXPECT_TRUE(test::holds("order == ['gone']"));
  ASSERT_EQ(f.document.trace.code.size(), 1U);
  const ir::Instruction& step = f.document.trace.code[0];
  EXPECT_EQ(step.op, Op::kCall);
  EXPECT_EQ(step.snap, 5U);
  const auto operands = f.document.trace.operandsOf(step);
  EXPECT_EQ(f.constantIds.pool.at(operands[0].id), pyapi::dropReferenceFunction());
  EXPECT_EQ(operands[1].id, 3U);
  EXPECT_EQ(f.blocks.newest(), 1U);
  EXPECT_EQ(f.reads.calls, "invalidate forget flush ");
  EXPECT_EQ(f.breaks.noted, (std::vector<diag::Code>{diag::Code::KTG0101}));
}

TEST(Lifetimes, FinalizersAreNoBreakWhereBreaksAreErrors) {
  define();
  Fixture f;
  f.breaks.strict = true;
  f.track(value("Noisy()").get(), 3);
  f.finalizers.runPending();
  EXPECT_EQ(f.document.trace.code.size(), 1U);
  EXPECT_TRUE(f.breaks.noted.empty());
}

TEST(Lifetimes, WriteNoStepWhereAHandledExceptionCanNotEscape) {
  define();
  Fixture f;
  f.snapshots.canEscape = false;
  f.track(value("Noisy()").get(), 3);
  f.finalizers.runPending();
  EXPECT_TRUE(f.document.trace.code.empty());
}

TEST(Lifetimes, EndWhereAFinalizerAndAWatchedGeneratorWouldGoInTurn) {
  define();
  Fixture f;
  const pyapi::Ref<> careful = value("begun(careful())");
  f.lifetimes.watch(f.suspend(careful.get()));
  f.track(value("Noisy()").get(), 3);
  f.lifetimes.runDroppedFinalizers();
  EXPECT_EQ(f.breaks.reasons, (std::vector<std::string>{"Noisy"}));
  EXPECT_TRUE(f.lifetimes.isReleased());
  EXPECT_TRUE(test::holds("order == ['gone']"));  // the program alone held it
}

TEST(Lifetimes, CloseDroppedGeneratorsBetweenTwoReferences) {
  define();
  Fixture f;
  f.lifetimes.watch(f.suspend(value("begun(careful())").get()));
  f.lifetimes.runDroppedFinalizers();
  EXPECT_EQ(f.closer.closed.size(), 1U);
  EXPECT_TRUE(f.breaks.ends.empty());
}

TEST(Lifetimes, EndWhereAWatchedGeneratorIsNotPartOfTheResult) {
  define();
  Fixture f;
  const pyapi::Ref<> careful = value("begun(careful())");
  const uint32_t id = f.suspend(careful.get());
  f.lifetimes.watch(id);
  f.finishTrace(Operand::none());
  f.lifetimes.checkWatched();
  ASSERT_EQ(f.breaks.ends, (std::vector<diag::Code>{diag::Code::KTG0302}));
  EXPECT_NE(f.breaks.reasons[0].find("careful"), std::string::npos);
}

TEST(Lifetimes, ReturnAWatchedGeneratorInsideATuple) {
  define();
  Fixture f;
  const pyapi::Ref<> careful = value("begun(careful())");
  const uint32_t id = f.suspend(careful.get());
  f.lifetimes.watch(id);
  const ir::RecipeId made = f.document.trace.addRecipe({ir::RecipeKind::kGenerator, ir::kNone, {}});
  f.virtuals.at(id).recipe = made;
  const ir::RecipeId tuple =
      f.document.trace.addRecipe({ir::RecipeKind::kTuple, ir::kNone, {Operand::recipe(made)}});
  f.finishTrace(Operand::recipe(tuple));
  f.lifetimes.checkWatched();
  EXPECT_TRUE(f.breaks.ends.empty());
}

TEST(Lifetimes, EndWhereATrackedObjectIsNotPartOfTheResult) {
  define();
  Fixture f;
  const pyapi::Ref<> noisy = value("Noisy()");
  f.track(noisy.get(), 3);
  f.finishTrace(Operand::source(0));
  f.lifetimes.checkFinalizers();
  EXPECT_TRUE(f.breaks.ends.empty());
  f.finishTrace(Operand::none());
  f.lifetimes.checkFinalizers();
  EXPECT_EQ(f.breaks.ends.size(), 1U);
}

TEST(Lifetimes, GiveUpAllReferencesWhenTheRecordingHasEnded) {
  define();
  Fixture f;
  pyapi::Ref<> list = value("[1]"), careful = value("begun(careful())");
  f.virtuals.add(VirtualKind::kList, list.get());
  f.lifetimes.watch(f.suspend(careful.get()));
  f.kept.add(list.get());
  EXPECT_EQ(Py_REFCNT(list.get()), 3);
  f.lifetimes.releaseObjects();
  EXPECT_TRUE(f.lifetimes.isReleased());
  EXPECT_EQ(Py_REFCNT(list.get()), 1);
  EXPECT_EQ(Py_REFCNT(careful.get()), 1);
  EXPECT_TRUE(f.watched.empty());
}

}  // namespace
}  // namespace kintsugi::capture
