#include "capture/finalized_objects.h"
#include "capture/finalizer_tracker.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture {
namespace {

using guard::SourceKind;
using test::run;
using test::value;

// The tables around a tracker, and a host that notes what it is asked for.
struct Fixture : FinalizerTracker::Host {
  BreakLog breaks;
  ConstantPool constants;
  guard::Document document;
  KnownSources sources{document.sources.nodes};
  KeptObjects kept;
  VirtualTable virtuals;
  Overlays overlays;
  FrameStack frames;
  CurrentInstruction instruction;
  Pauses pauses;
  ExceptionLog exceptions;
  DeadObjects dead{virtuals, pauses};
  FinalizedObjects finalized{{kept, sources, virtuals, exceptions, dead, pauses, breaks}};
  FinalizerTracker finalizers{
      {breaks, constants, sources, kept, virtuals, overlays, frames, instruction, dead, pauses}, *this};
  std::vector<std::string> ended;
  std::vector<ir::ValueId> steps;
  bool released = false;
  bool expected = false;

  void endFor(const std::string& what) override {
    ended.push_back(what);
    breaks.complete();
  }
  void endAndRelease(const std::string& what) override {
    endFor(what);
    released = true;
  }
  std::optional<ir::StateId> beginFinalizer(const std::string&) override { return 5; }
  void expectWrites() override { expected = true; }
  void finishFinalizer(ir::ValueId made, ir::StateId snap) override {
    EXPECT_EQ(snap, 5U);
    steps.push_back(made);
  }

  // As the recorder does with a step's result.
  Shadow keep(PyObject* object, ir::ValueId made) {
    const KnownSources::Found found = sources.find({SourceKind::kValue, ir::kNone, nullptr, made}, 0);
    sources.append(found, {SourceKind::kValue, ir::kNone, ir::kNone, made, 0}, object);
    sources.name(object, found.id);
    kept.add(object);
    return Shadow::source(found.id);
  }
};

void defineNoisy() {
  run("order = []\n"
      "class Noisy:\n"
      "  def __init__(self, n): self.n = n\n"
      "  def __del__(self): order.append(self.n)\n");
}

TEST(FinalizerTracker, RunsTheFinalizerOfWhatOnlyTheRecorderHolds) {
  defineNoisy();
  Fixture f;
  pyapi::Ref<> held = value("Noisy(1)");
  f.finalizers.track(held.get(), f.keep(held.get(), 3));
  ASSERT_EQ(f.finalizers.size(), 1U);
  PyObject* object = held.get();
  held.reset();
  f.finalizers.runPending();
  EXPECT_TRUE(test::holds("order == [1]"));
  EXPECT_EQ(f.steps, (std::vector<ir::ValueId>{3}));
  EXPECT_TRUE(f.expected);
  EXPECT_FALSE(f.sources.of(object).has_value());  // its address may be another object's now
  EXPECT_TRUE(f.finalizers.empty());
  EXPECT_TRUE(f.ended.empty());
}

TEST(FinalizerTracker, RunsTheNewestFirstBehindAnException) {
  defineNoisy();
  Fixture f;
  for (int i = 1; i <= 2; ++i) {
    const pyapi::Ref<> made = value(i == 1 ? "Noisy(1)" : "Noisy(2)");
    f.finalizers.track(made.get(), f.keep(made.get(), static_cast<ir::ValueId>(i)));
  }
  f.finalizers.noteUnwound();
  f.finalizers.runPending();
  EXPECT_TRUE(test::holds("order == [2, 1]"));
}

TEST(FinalizerTracker, EndsWhereNoFrameHoldsTheObject) {
  defineNoisy();
  Fixture f;
  const pyapi::Ref<> held = value("Noisy(1)");  // by somebody that no frame of the trace knows
  f.finalizers.track(held.get(), f.keep(held.get(), 3));
  f.finalizers.runPending();
  EXPECT_EQ(f.ended, (std::vector<std::string>{"Noisy"}));
  EXPECT_TRUE(test::holds("order == []"));
}

TEST(FinalizerTracker, EndsWhereTheObjectIsRevived) {
  run("saved = []\nclass Zombie:\n  def __del__(self): saved.append(self)");
  Fixture f;
  {
    const pyapi::Ref<> made = value("Zombie()");
    f.finalizers.track(made.get(), f.keep(made.get(), 3));
  }
  f.finalizers.runPending();
  EXPECT_EQ(f.ended, (std::vector<std::string>{"Zombie.__del__"}));
  EXPECT_TRUE(f.steps.empty());
  EXPECT_TRUE(test::holds("len(saved) == 1"));
}

TEST(FinalizerTracker, NoticesThatAStepHasLetGoOfOne) {
  defineNoisy();
  Fixture f;
  pyapi::Ref<> held = value("Noisy(1)");
  ShadowFrame& frame = f.frames.enter(std::make_unique<ShadowFrame>());
  EXPECT_EQ(frame.act, nullptr);
  f.finalizers.track(held.get(), f.keep(held.get(), 3));
  f.kept.take(held.get());  // as release() does
  held.reset();             // in the step
  f.finalizers.reclaim();
  EXPECT_EQ(f.ended.size(), 1U);
  EXPECT_TRUE(f.finalizers.empty());
}

TEST(FinalizerTracker, RefusesAStepThatMayDropWhatTheTraceNeeds) {
  defineNoisy();
  Fixture f;
  const pyapi::Ref<> held = value("Noisy(1)");
  f.finalizers.track(held.get(), f.keep(held.get(), 3));
  EXPECT_FALSE(f.finalizers.release());
  EXPECT_TRUE(f.released);
}

TEST(FinalizerTracker, GivesAllUpWhenTheRecordingHasEnded) {
  defineNoisy();
  Fixture f;
  {
    const pyapi::Ref<> made = value("Noisy(1)");
    f.finalizers.track(made.get(), f.keep(made.get(), 3));
  }
  f.finalizers.forgetAll();
  EXPECT_TRUE(test::holds("order == [1]"));
  EXPECT_TRUE(f.steps.empty());
}

TEST(FinalizerTracker, WantsToSeeInTheResultWhatHasNotEnded) {
  defineNoisy();
  Fixture f;
  const pyapi::Ref<> held = value("Noisy(1)");
  f.finalizers.track(held.get(), f.keep(held.get(), 3));
  f.finalizers.checkReturned({2, 3});
  EXPECT_TRUE(f.ended.empty());
  f.finalizers.checkReturned({2});
  EXPECT_EQ(f.ended.size(), 1U);
}

TEST(FinalizerTracker, LooksAtObjectsWithAFinalizerInPythonOnly) {
  run("import tempfile\nclass Quiet: pass");
  Fixture f;
  const pyapi::Ref<> quiet = value("Quiet()");
  f.finalizers.track(quiet.get(), f.keep(quiet.get(), 1));
  EXPECT_TRUE(f.finalizers.empty());
}

TEST(FinalizedObjects, CloseAFileOnceTheProgramHasDroppedIt) {
  run("import tempfile, os\npath = tempfile.mktemp()");
  Fixture f;
  pyapi::Ref<> file = value("open(path, 'w')");
  f.keep(file.get(), 1);
  f.finalized.add(file.get());
  EXPECT_TRUE(f.finalized.contains(file.get()));
  const pyapi::Ref<> count = pyapi::steal(PyObject_CallMethod(file.get(), "write", "s", "text"));
  f.finalized.freeDropped();
  EXPECT_TRUE(test::holds("open(path).read() == ''"));  // somebody holds it
  file.reset();
  f.finalized.freeDropped();
  EXPECT_TRUE(test::holds("open(path).read() == 'text'"));
  EXPECT_TRUE(f.finalized.empty());
  run("os.unlink(path)");
}

TEST(FinalizedObjects, TellWhetherPythonCodeRuns) {
  defineNoisy();
  const pyapi::Ref<> noisy = value("Noisy(1)"), holder = value("[Noisy(2)]"), quiet = value("[1, 'a']");
  EXPECT_TRUE(FinalizedObjects::runsPython(noisy.get()));
  EXPECT_TRUE(FinalizedObjects::holdsPython(holder.get()));
  EXPECT_FALSE(FinalizedObjects::runsPython(quiet.get()));
}

TEST(FinalizedObjects, ForgetExceptionsThatNobodyHasCaught) {
  Fixture f;
  {
    const pyapi::Ref<> error = value("ValueError()");
    f.keep(error.get(), 1);
    f.exceptions.raised().push_back({pyapi::newRef(error.get()), {}, {}, {}});
    f.finalized.freeDropped();
    EXPECT_EQ(f.exceptions.raised().size(), 1U);  // we hold it
  }
  f.finalized.freeDropped();
  EXPECT_TRUE(f.exceptions.raised().empty());
}

TEST(KeptObjects, HandTheirReferenceOver) {
  KeptObjects kept;
  const pyapi::Ref<> object = value("object()");
  kept.add(object.get());
  kept.add(object.get());
  EXPECT_EQ(Py_REFCNT(object.get()), 2);
  EXPECT_EQ(kept.take(object.get()).get(), object.get());
  EXPECT_FALSE(kept.contains(object.get()));
  EXPECT_FALSE(kept.take(object.get()));
}

}  // namespace
}  // namespace kintsugi::capture
