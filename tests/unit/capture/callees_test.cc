#include "capture/callees.h"

#include "capture/nested_frames.h"
#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using test::inFrame;
using test::run;
using test::value;

// Tuples are objects of the trace, cells are constants.
struct FakeFrameObjects final : FrameObjects {
  explicit FakeFrameObjects(VirtualTable& table) : virtuals(table) {}
  VirtualTable& virtuals;
  bool knowsCells = true;
  Shadow tupleOf(PyObject* tuple, Shadows parts) override {
    const Shadow made = virtuals.add(VirtualKind::kTuple, tuple);
    virtuals[made].parts = std::move(parts);
    return made;
  }
  Shadow newCell(PyObject* cell, Shadow content) override {
    const Shadow made = virtuals.add(VirtualKind::kCell, cell);
    virtuals[made].parts = {content};
    return made;
  }
  std::optional<Shadow> closureCell(ShadowFrame&, int index, PyObject*) override {
    return knowsCells ? std::optional(Shadow::source(200 + static_cast<ir::SourceId>(index))) : std::nullopt;
  }
  std::optional<Shadow> elementOf(Shadow, PyObject*, Py_ssize_t index) override {
    return Shadow::source(300 + static_cast<ir::SourceId>(index));
  }
};

struct FakeRunner final : InstructionRunner {
  Flow execute(Activation&, const Instr&) override { return Flow::kNext; }
};

struct Fixture {
  test::FakeBreaks breaks;
  test::FakeGuards guards;
  FakeRunner runner;
  test::FakeHost host;
  RecorderOptions options;
  BreakLog log;
  ConstantPool constants;
  ir::Trace trace;
  std::vector<guard::SourceNode> nodes;
  KnownSources sources{nodes};
  KeptObjects kept;
  VirtualTable virtuals;
  Overlays overlays;
  FrameStack frames;
  CurrentInstruction instruction;
  ExpectedFrames expected;
  Pauses pauses;
  TorchCalls torchCalls;
  DeadObjects dead{virtuals, pauses};
  WatchedGenerators watched{virtuals};
  FinalizerTracker finalizers{
      {log, constants, sources, kept, virtuals, overlays, frames, instruction, dead, pauses}, host};
  test::FakeObjects known{virtuals};
  test::FakeContainers containers{overlays};
  FakeFrameObjects objects{virtuals};
  test::FakeWriter writer{trace};
  test::FakeSnapshots snapshots{virtuals, trace};
  Callees::Roles roles{breaks,     guards,  guards, guards, guards,    known,
                       containers, objects, writer, runner, snapshots, snapshots};
  Callees callees{roles,   expected, finalizers, frames,   instruction,
                  options, pauses,   torchCalls, virtuals, watched};

  // The announcement of a call with these arguments; those behind `positional` have the names.
  PendingFrame call(const char* function, PooledVector<PyObject*> args, Shadows shadows, size_t positional,
                    PyObject* names = nullptr) {
    PendingFrame pending;
    pending.function = value(function);
    pending.code = PyFunction_GET_CODE(pending.function.get());
    pending.functionShadow = Shadow::source(1);
    pending.args = std::move(args);
    pending.shadows = std::move(shadows);
    pending.positional = positional;
    pending.kwnames = names;
    return pending;
  }
  // The shadow frame that was entered; a test looks at it while the real one runs.
  ShadowFrame& entered() { return *frames.current(); }
  bool endedWith(diag::Code code) const { return breaks.ends == std::vector<diag::Code>{code}; }
};

TEST(Callees, BindArgumentsByPositionAndByName) {
  run("def bound(a, b, *, c=None): return grab()");
  const pyapi::Ref<> names = value("('c', 'b')");
  inFrame("bound(1, c=3, b=2)", [&](ShadowFrame& real) {
    Fixture f;
    f.callees.expectFrame(f.call("bound", {Py_None, Py_None, Py_None},
                                 {Shadow::value(1), Shadow::value(3), Shadow::value(2)}, 1, names.get()));
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    EXPECT_EQ(f.entered().locals, (Shadows{Shadow::value(1), Shadow::value(2), Shadow::value(3)}));
    EXPECT_EQ(real.act->observerData, &f.entered());
    EXPECT_TRUE(f.entered().rebuildable);
  });
}

TEST(Callees, GatherTheRestOfTheArguments) {
  run("def open_call(a, *rest, **named): return grab()");
  const pyapi::Ref<> names = value("('key',)"), key = value("'key'");
  inFrame("open_call(1, 2, 3, key=4)", [&](ShadowFrame& real) {
    Fixture f;
    f.callees.expectFrame(f.call("open_call", {Py_None, Py_None, Py_None, Py_None},
                                 {Shadow::value(1), Shadow::value(2), Shadow::value(3), Shadow::value(4)}, 3,
                                 names.get()));
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    const Shadows& locals = f.entered().locals;
    EXPECT_EQ(f.virtuals[locals[1]].parts, (Shadows{Shadow::value(2), Shadow::value(3)}));
    EXPECT_EQ(f.virtuals.entryOf(f.virtuals[locals[2]], key.get()), Shadow::value(4));
  });
}

TEST(Callees, ReadDefaultsUnderGuards) {
  run("def defaulted(a, b=[5], *, c=[6]): return grab()");
  inFrame("defaulted(1)", [&](ShadowFrame& real) {
    Fixture f;
    f.callees.expectFrame(f.call("defaulted", {Py_None}, {Shadow::value(1)}, 1));
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    EXPECT_EQ(f.guards.reads, (std::vector<SourceKind>{SourceKind::kDefaults, SourceKind::kTupleItem,
                                                       SourceKind::kKwDefaults, SourceKind::kDictItem}));
    EXPECT_EQ(f.guards.guards.at(0).first, GuardKind::kIs);  // this very tuple of defaults
    EXPECT_TRUE(f.entered().locals[1].isSource());
  });
}

TEST(Callees, TakeDefaultsOfAFunctionOfTheTraceFromItsParts) {
  run("def defaulted(a, b=[5]): return grab()");
  inFrame("defaulted(1)", [&](ShadowFrame& real) {
    Fixture f;
    PendingFrame pending = f.call("defaulted", {Py_None}, {Shadow::value(1)}, 1);
    pending.functionShadow = f.virtuals.add(VirtualKind::kFunction, pending.function.get());
    Virtual& made = f.virtuals[pending.functionShadow];
    made.parts = {Shadow::source(7)};
    made.partObjects.push_back(value("defaulted.__defaults__"));
    f.callees.expectFrame(std::move(pending));
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    EXPECT_EQ(f.entered().locals[1], Shadow::source(300));
    EXPECT_TRUE(f.guards.reads.empty());
  });
}

TEST(Callees, EnterNoFrameThatWasNotAnnounced) {
  run("def bound(a): return grab()\ndef other(a): pass");
  inFrame("bound(1)", [&](ShadowFrame& real) {
    Fixture f;
    EXPECT_FALSE(f.callees.acceptFrame(*real.act));
    f.callees.expectFrame(f.call("other", {Py_None}, {Shadow::value(1)}, 1));
    EXPECT_FALSE(f.callees.acceptFrame(*real.act));
    EXPECT_EQ(f.frames.current(), nullptr);
  });
}

TEST(Callees, EnterNoFrameThatDropsAnArgument) {
  run("def bound(a): return grab()");
  inFrame("bound(1)", [&](ShadowFrame& real) {
    Fixture f;  // C code has put one argument away
    f.callees.expectFrame(f.call("bound", {Py_None, Py_None}, {Shadow::value(1), Shadow::value(2)}, 2));
    EXPECT_FALSE(f.callees.acceptFrame(*real.act));
  });
}

TEST(Callees, CanNotExitInAFrameUnderOneThatCanNotBeRebuilt) {
  run("def bound(a): return grab()");
  inFrame("bound(1)", [&](ShadowFrame& real) {
    Fixture f;
    ShadowFrame caller;
    caller.rebuildable = false;
    f.frames.setCurrent(&caller);
    f.callees.expectFrame(f.call("bound", {Py_None}, {Shadow::value(1)}, 1));
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    EXPECT_FALSE(f.entered().rebuildable);
    EXPECT_EQ(f.entered().caller, &caller);
  });
}

TEST(Callees, LearnWhatAConstructorHasMadeWhenInitBegins) {
  run("class Wrong(ValueError):\n"
      "  def __init__(self, text): grab()\n");
  inFrame("Wrong('text')", [&](ShadowFrame& real) {
    Fixture f;
    PendingFrame pending =
        f.call("Wrong.__init__", {nullptr, Py_None}, {Shadow::null(), Shadow::value(2)}, 2);
    pending.selfIsNew = true;
    f.callees.expectFrame(std::move(pending));
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    const Shadow self = f.entered().locals[0];
    ASSERT_TRUE(self.isVirtual());
    EXPECT_EQ(f.virtuals[self].object.get(), test::localOf(real, 0));
    EXPECT_EQ(f.virtuals[self].kind, VirtualKind::kException);
    EXPECT_EQ(f.virtuals[self].parts, (Shadows{Shadow::value(2)}));  // its `args`
    EXPECT_EQ(f.entered().site.replacement, self);  // what the call gives, not what __init__ returns
  });
}

TEST(Callees, PassOnTheResultOfTheFrame) {
  Fixture f;
  ShadowFrame caller, frame;
  frame.caller = &caller;
  EXPECT_TRUE(f.callees.recordReturn(frame, Shadow::value(4), Py_None));
  EXPECT_EQ(f.callees.returned(), Shadow::value(4));
  EXPECT_TRUE(f.writer.written.empty());
  frame.pinResult = true;  // C code converts it
  EXPECT_TRUE(f.callees.recordReturn(frame, Shadow::source(4), Py_None));
  EXPECT_EQ(f.callees.returned(), Shadow::constant());
  EXPECT_EQ(f.guards.pinned, (std::vector<PyObject*>{Py_None}));
}

TEST(Callees, EndIfTheFrameWasNotSeen) {
  Fixture f;
  f.callees.returned();
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0102));
}

TEST(Callees, ReturnFromTheTrace) {
  Fixture f;
  ShadowFrame frame;
  EXPECT_TRUE(f.callees.recordReturn(frame, Shadow::value(4), Py_None));
  ASSERT_EQ(f.writer.written.size(), 1U);
  EXPECT_EQ(f.writer.written[0].op, Op::kRet);
  EXPECT_EQ(f.writer.written[0].operands[0].id, 4U);
  f.snapshots.canName = false;
  EXPECT_FALSE(f.callees.recordReturn(frame, Shadow::value(4), Py_None));
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0302));
}

TEST(Callees, PinAMethodThatIsEntered) {
  run("def method(self): pass");
  Fixture f;
  const pyapi::Ref<> method = value("method");
  const PendingFrame pending = f.callees.methodFrame(method.get(), Shadow::source(3), Py_None);
  EXPECT_EQ(f.guards.pinned, (std::vector<PyObject*>{method.get()}));
  EXPECT_EQ(pending.shadows, (Shadows{Shadow::source(3)}));
  EXPECT_EQ(pending.code, PyFunction_GET_CODE(method.get()));
}

TEST(Callees, FindObjectsOfTheTraceAmongTheArguments) {
  run("def bound(a): pass");
  Fixture f;
  const pyapi::Ref<> cls = value("type('Made', (), {})");
  const Shadow made = f.virtuals.add(VirtualKind::kClass, cls.get());
  f.virtuals.addClass(made);
  f.callees.expectFrame(f.call("bound", {cls.get()}, {Shadow::constant()}, 1));
  EXPECT_EQ(f.expected.pending().shadows[0], made);
}

TEST(Callees, ResumeAGeneratorOfTheTrace) {
  run("def count(a):\n"
      "  yield grab()\n"
      "made = count(1)\n");
  const pyapi::Ref<> generator = value("made");
  inFrame("next(made)", [&](ShadowFrame& real) {
    Fixture f;
    EXPECT_FALSE(f.callees.acceptFrame(*real.act));  // older than the trace
    const Shadow made = f.virtuals.add(VirtualKind::kGenerator, generator.get());
    f.virtuals[made].frame = std::make_unique<ShadowFrame>();
    f.virtuals[made].frame->code = real.code;
    f.virtuals[made].frame->locals = {Shadow::value(1)};
    ShadowFrame caller;
    f.frames.setCurrent(&caller);
    PendingFrame pending;
    pending.generator = &f.virtuals[made];
    pending.shadows = {Shadow::value(9)};  // sent
    f.callees.expectFrame(std::move(pending));
    EXPECT_TRUE(f.callees.throwsInto(*real.act));
    f.virtuals[made].recipe = 0;
    const uint64_t epoch = f.virtuals.epoch();
    ASSERT_TRUE(f.callees.acceptFrame(*real.act));
    EXPECT_EQ(f.entered().locals, (Shadows{Shadow::value(1)}));
    EXPECT_EQ(f.entered().stack, (Shadows{Shadow::value(9)}));
    EXPECT_EQ(f.virtuals[made].frame, nullptr);  // it runs
    EXPECT_GT(f.virtuals[made].changed, epoch);  // the recipe of the generator that waits is stale
    EXPECT_FALSE(f.callees.throwsInto(*real.act));
  });
}

TEST(Callees, CloseAGeneratorThatTheProgramHasDropped) {
  run("order = []\n"
      "def careful():\n"
      "  try: yield 1\n"
      "  finally: order.append('closed')\n"
      "made = careful()\n"
      "next(made)\n");
  Fixture f;
  ShadowFrame caller;
  f.frames.setCurrent(&caller);
  const pyapi::Ref<> generator = value("made");
  const Shadow made = f.virtuals.add(VirtualKind::kGenerator, generator.get());
  f.callees.closeGenerator(f.virtuals[made]);
  EXPECT_TRUE(test::holds("order == ['closed']"));
  EXPECT_EQ(f.expected.pending().generator, &f.virtuals[made]);  // its frame was announced
  EXPECT_FALSE(f.expected.pending().rebuildable);
  EXPECT_EQ(f.frames.current(), &caller);
  EXPECT_FALSE(f.watched.isClosing());
  EXPECT_TRUE(f.breaks.live);
}

TEST(Callees, EndIfAGeneratorThatIsClosedRaises) {
  run("def wrong():\n"
      "  try: yield 1\n"
      "  finally: raise ValueError\n"
      "made = wrong()\n"
      "next(made)\n"
      "import sys\n"
      "seen = []\n"
      "sys.unraisablehook = lambda raised: seen.append(raised.exc_type)\n");
  Fixture f;
  const pyapi::Ref<> generator = value("made");
  f.callees.closeGenerator(f.virtuals[f.virtuals.add(VirtualKind::kGenerator, generator.get())]);
  run("sys.unraisablehook = sys.__unraisablehook__");
  EXPECT_TRUE(test::holds("seen == [ValueError]"));  // as for any generator that is freed
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0111));
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

TEST(Callees, EndIfAGeneratorFunctionWasNotAnnounced) {
  run("def count(): yield 1\ndef caller(): return grab()");
  inFrame("caller()", [&](ShadowFrame& real) {
    Fixture f;
    EXPECT_FALSE(f.callees.enterGeneratorFunction(real.act->frame));
    EXPECT_TRUE(f.endedWith(diag::Code::KTG0102));
    Fixture paused;
    const Paused pause(paused.pauses);
    EXPECT_FALSE(paused.callees.enterGeneratorFunction(real.act->frame));
    EXPECT_TRUE(paused.breaks.live);  // it is not recorded
  });
}

TEST(NestedFrames, KeepTheInstructionAroundThem) {
  Fixture f;
  const Instr instr{}, inner{};
  ShadowFrame frame;
  f.frames.setCurrent(&frame);
  f.instruction.begin(instr, 3);
  f.instruction.setState(8);
  {
    const NestedFrames nested(f.frames, f.instruction);
    f.frames.setCurrent(nullptr);
    f.instruction.begin(inner, 0);
    f.instruction.setExecuted(true);
  }
  EXPECT_EQ(f.frames.current(), &frame);
  EXPECT_EQ(f.instruction.instr(), &instr);
  EXPECT_EQ(f.instruction.depthBefore(), 3U);
  EXPECT_FALSE(f.instruction.isExecuted());
  EXPECT_EQ(f.instruction.state(), ir::kNone);  // objects may have changed
}

}  // namespace
}  // namespace kintsugi::capture
