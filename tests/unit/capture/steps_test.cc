#include "capture/steps.h"

#include "unit/capture/torch_fakes.h"

namespace kintsugi::capture {
namespace {

using guard::GuardKind;
using guard::SourceKind;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using test::run;
using test::value;

struct FakeErrors final : BreakErrors {
  size_t refused = 0, raised = 0;
  void refuse(const diag::Diagnostic&) override { ++refused; }
  Flow raiseRefused() override {
    ++raised;
    return Flow::kRaise;
  }
};

struct FakeSurroundings final : StepSurroundings {
  bool transform = false;
  size_t aliased = 0;
  std::vector<PyObject*> raised;
  bool isInTransform() const override { return transform; }
  bool leavesTransforms(PyCodeObject*) const override { return transform; }
  void applyAliases() override { ++aliased; }
  void noteRaised(PyObject* exception) override { raised.push_back(exception); }
};

struct Fixture {
  test::FakeBreaks breaks;
  FakeErrors errors;
  test::FakeGuards guards;
  test::FakeSizes sizes;
  FakeSurroundings surroundings;
  test::FakeHost host;
  AliasList aliases;
  GuardBlocks blocks;
  BreakLog log;
  guard::Document document;
  AttributeLog attributes{nullptr};
  ConstantPool constants;
  ClassVersions classVersions{document, constants, attributes};
  ExceptionLog exceptions;
  KnownSources sources{document.sources.nodes};
  KeptObjects kept;
  VirtualTable virtuals;
  Overlays overlays;
  FrameStack frames;
  FrozenObjects frozen;
  CurrentInstruction instruction;
  torchapi::OpRecorder ops;
  Pauses pauses;
  SizeReads sizeReads;
  GlobalStates states;
  DeadObjects dead{virtuals, pauses};
  FinalizedObjects finalized{{kept, sources, virtuals, exceptions, dead, pauses, log}};
  FinalizerTracker finalizers{
      {log, constants, sources, kept, virtuals, overlays, frames, instruction, dead, pauses}, host};
  test::FakeSnapshots snapshots{virtuals, document.trace};
  Steps::Roles roles{breaks, errors, guards, guards, snapshots, snapshots, sizes, surroundings};
  Steps steps{roles,      aliases,   blocks,     breakLog(), classVersions, constants,   document,
              exceptions, finalized, finalizers, frames,     frozen,        instruction, ops,
              overlays,   pauses,    sizeReads,  states,     virtuals};

  BreakLog& breakLog() { return log; }

  // A call of `callable` with arguments that a test adds.
  ShadowFrame frame;
  test::FakeActivation act;
  pyapi::Ref<> callable = value("print");
  std::vector<PyObject*> args;
  Shadows shadows;

  CallValues call() {
    CallValues values(frame, act, act.instr);
    values.set(callable.get(), Shadow::constant(), args.data(), shadows.data(), args.size());
    return values;
  }
  Flow step(CallKind kind, Shadow& result, const char* reason = "") {
    CallValues values = call();
    return steps.callStep(values, kind, reason, result);
  }
  const std::vector<ir::Instruction>& code() const { return document.trace.code; }
  bool endedWith(diag::Code why) const { return breaks.ends == std::vector<diag::Code>{why}; }
};

TEST(Steps, EndIfAGeneratorThatRunsIsToBeBuilt) {
  Fixture f;
  f.snapshots.running = 3;
  EXPECT_EQ(f.steps.emit(Op::kGuardTrue, {Operand::value(1)}, {}, ir::kNone), 0U);
  EXPECT_TRUE(f.breaks.live);
  f.steps.emit(Op::kGuardTrue, {Operand::recipe(3)}, {}, ir::kNone);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0302));
}

TEST(Steps, CallCCodeAgainInEachRun) {
  Fixture f;
  const pyapi::Ref<> argument = value("object()");
  f.args = {argument.get()};
  f.shadows = {Shadow::source(5)};
  Shadow result;
  EXPECT_EQ(f.step(CallKind::kKnown, result), Flow::kNext);
  EXPECT_EQ(f.act.runs, 1);
  ASSERT_EQ(f.code().size(), 1U);
  EXPECT_EQ(f.code()[0].op, Op::kCallKnown);
  const auto operands = f.document.trace.operandsOf(f.code()[0]);
  ASSERT_EQ(operands.size(), 2U);
  EXPECT_EQ(operands[0].kind, OperandKind::kConst);
  EXPECT_EQ(operands[1].id, 5U);
  EXPECT_EQ(f.guards.reads, (std::vector<SourceKind>{SourceKind::kValue}));
  EXPECT_TRUE(result.isSource());
  EXPECT_TRUE(f.blocks.isPending());    // what the result is has to be guarded behind it
  EXPECT_EQ(f.blocks.validFrom(), 0U);  // a known call changes nothing that was read
  EXPECT_TRUE(f.breaks.noted.empty());
}

TEST(Steps, NameTheKeywordsOfACall) {
  Fixture f;
  const pyapi::Ref<> names = value("('end',)"), argument = value("object()");
  f.args = {argument.get()};
  f.shadows = {Shadow::source(5)};
  CallValues call(f.frame, f.act, f.act.instr);
  call.set(f.callable.get(), Shadow::constant(), f.args.data(), f.shadows.data(), 0, names.get());
  Shadow result;
  ASSERT_EQ(f.steps.callStep(call, CallKind::kKnown, nullptr, result), Flow::kNext);
  EXPECT_EQ(f.code()[0].kwCount, 1U);
}

TEST(Steps, TakeEverythingForChangedBehindAnOpaqueCall) {
  Fixture f;
  const pyapi::Ref<> list = value("[]"), built = value("[]");
  const Shadow made = f.virtuals.add(VirtualKind::kList, list.get());
  f.args = {list.get()};
  f.shadows = {made};
  f.overlays.make(built.get());
  Shadow result;
  ASSERT_EQ(f.step(CallKind::kOpaque, result), Flow::kNext);
  EXPECT_EQ(f.code()[0].op, Op::kCall);
  EXPECT_EQ(f.snapshots.escaped, (std::vector<PyObject*>{list.get()}));
  EXPECT_EQ(f.virtuals[made].kind, VirtualKind::kOpaque);
  EXPECT_TRUE(f.virtuals[made].forgotten);
  EXPECT_FALSE(f.virtuals.contains(list.get()));
  EXPECT_TRUE(f.overlays.empty());
  EXPECT_EQ(f.blocks.validFrom(), f.blocks.newest());
  EXPECT_EQ(f.document.guards.guards.back().kind, GuardKind::kGlobalState);
  EXPECT_EQ(f.breaks.noted, (std::vector<diag::Code>{diag::Code::KTG0101}));
}

TEST(Steps, KeepTheIdentityOfAnInstanceThatIsHandedOut) {
  run("class Holder: pass\nholder = Holder()");
  Fixture f;
  const pyapi::Ref<> holder = value("holder"), tuple = value("(1,)");
  f.args = {holder.get(), tuple.get()};
  f.shadows = {f.virtuals.add(VirtualKind::kInstance, holder.get()),
               f.virtuals.add(VirtualKind::kTuple, tuple.get())};
  Shadow result;
  f.step(CallKind::kKnown, result);
  EXPECT_EQ(f.snapshots.escaped, (std::vector<PyObject*>{holder.get()}));  // of the tuple, items are read
}

TEST(Steps, TakeACallThatIteratesOverAMapForOpaque) {
  Fixture f;
  const pyapi::Ref<> map = value("map(len, [])");
  f.args = {map.get()};
  f.shadows = {f.virtuals.add(VirtualKind::kMap, map.get())};
  Shadow result;
  f.step(CallKind::kPure, result);
  EXPECT_EQ(f.code().at(0).op, Op::kCall);
}

TEST(Steps, RunTheInstructionIfTheCallCanNotBeWritten) {
  Fixture f;
  f.snapshots.canName = false;
  Shadow result;
  EXPECT_EQ(f.step(CallKind::kKnown, result), Flow::kNext);
  EXPECT_EQ(f.act.runs, 1);
  EXPECT_TRUE(f.code().empty());
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0302));
}

TEST(Steps, ReadEverythingAgainIfPythonRanWhereOnlyCCodeShould) {
  Fixture f;
  f.act.during = [&](Activation&) { f.pauses.noteCallback(); };
  Shadow result;
  f.step(CallKind::kPure, result);
  EXPECT_EQ(f.code().at(0).op, Op::kCallPure);
  EXPECT_EQ(f.blocks.validFrom(), f.blocks.newest());
  EXPECT_GT(f.blocks.newest(), 0U);
}

TEST(Steps, DoNotRecordWhileTheyRun) {
  Fixture f;
  bool paused = false;
  f.act.during = [&](Activation&) { paused = f.pauses.isPaused(); };
  Shadow result;
  f.step(CallKind::kKnown, result);
  EXPECT_TRUE(paused);
  EXPECT_FALSE(f.pauses.isPaused());
}

TEST(Steps, SayThatAnExceptionOfACallHasNoGuard) {
  Fixture f;
  f.act.gives = nullptr;
  Shadow result;
  EXPECT_EQ(f.step(CallKind::kKnown, result), Flow::kRaise);
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_ValueError));  // the program's, untouched
  PyErr_Clear();
  EXPECT_TRUE(f.exceptions.isUnsafe());
  EXPECT_TRUE(f.code().empty());
}

TEST(Steps, EndAtAResultThatRunsPythonWhenItGoes) {
  run("def careful():\n"
      "  try: yield 1\n"
      "  finally: pass\n");
  Fixture f;
  f.act.gives = value("careful()").release();
  f.act.handsOver = true;
  Shadow result;
  f.step(CallKind::kKnown, result);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0302));
}

TEST(Steps, WriteOneCallAnInstruction) {
  Fixture f;
  f.blocks.setPending(true);
  Shadow result;
  f.step(CallKind::kKnown, result);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0103));
}

TEST(Steps, PutOffACallWhoseResultIsKnown) {
  Fixture f;
  CallValues call = f.call();
  EXPECT_EQ(f.steps.quietCall(call), Flow::kNext);
  EXPECT_TRUE(f.code().at(0).deferrable);
  EXPECT_FALSE(f.blocks.isPending());
  f.act.during = [&](Activation&) { f.pauses.noteCallback(); };
  CallValues again = f.call();
  f.steps.quietCall(again);
  EXPECT_EQ(f.code().size(), 1U);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0303));
}

TEST(Steps, RaiseABreakThatIsAnErrorInsteadOfTheInstruction) {
  Fixture f;
  f.log.refuse(diag::Diagnostic(diag::Code::KTG0101, {}, {}), true);
  EXPECT_EQ(f.steps.execute(f.act, f.act.instr), Flow::kRaise);
  EXPECT_EQ(f.errors.raised, 1U);
  EXPECT_EQ(f.act.runs, 0);
  EXPECT_FALSE(f.instruction.isExecuted());
}

TEST(Steps, PutAResultInPlaceOfACall) {
  Fixture f;
  f.act.stack[0] = value("object()").release();
  f.act.stack[1] = value("object()").release();
  f.act.sp = f.act.stack + 2;
  CallValues call = f.call();
  call.popped = 2;
  const pyapi::Ref<> made = value("object()");
  EXPECT_EQ(f.steps.replaceCall(call, made.clone()), Flow::kNext);
  EXPECT_EQ(f.act.sp, f.act.stack + 1);
  EXPECT_EQ(f.act.peek(1), made.get());
  EXPECT_TRUE(f.instruction.isExecuted());
  EXPECT_EQ(f.steps.replaceCall(call, {}), Flow::kRaise);
}

TEST(Steps, WriteThePendingBlockWhereTheNextInstructionBegins) {
  Fixture f;
  f.blocks.next();
  f.blocks.setPending(true);
  f.steps.flushBlock();
  EXPECT_FALSE(f.blocks.isPending());
  EXPECT_EQ(f.code().at(0).op, Op::kGuardBlock);
  EXPECT_EQ(f.document.trace.operandsOf(f.code()[0])[0].i, 1);
  EXPECT_EQ(f.surroundings.aliased, 0U);
  f.aliases.emplace_back(1, Shadow::value(2));
  f.steps.flushBlock();
  EXPECT_EQ(f.surroundings.aliased, 1U);
}

TEST(Steps, ReadEverythingAgainBehindAnOperatorInABlockOfItsOwn) {
  Fixture f;
  f.steps.readAgain();
  EXPECT_TRUE(f.blocks.isPending());
  EXPECT_EQ(f.blocks.newest(), 1U);
  EXPECT_EQ(f.blocks.validFrom(), 1U);
  f.steps.readAgain();  // another operator of the instruction
  EXPECT_EQ(f.blocks.newest(), 1U);
  ASSERT_EQ(f.document.guards.guards.size(), 1U);
  EXPECT_EQ(f.document.guards.guards[0].kind, GuardKind::kGlobalState);
  EXPECT_EQ(f.document.guards.guards[0].number, 2);
}

TEST(Steps, GuardHeldTensorsBehindTheBlockInWhichTheyAreReadAgain) {
  Fixture f;
  const ir::StateId snap = f.document.trace.addState({}, {}, {});
  f.steps.writeHeldGuards();  // there are none
  f.steps.readAgain();
  EXPECT_TRUE(f.steps.isBehindOperator());
  f.steps.flushBlock();
  f.steps.emit(Op::kAten, {}, {}, snap);
  f.steps.guardHeld(3, 0);
  f.blocks.next();
  f.steps.invalidateReads();
  EXPECT_FALSE(f.steps.isBehindOperator());
  f.steps.guardHeld(4, 1);
  f.steps.guardHeld(3, 0);
  f.steps.flushBlock();
  f.steps.writeHeldGuards();
  std::vector<Op> written;
  for (const ir::Instruction& ins : f.code()) written.push_back(ins.op);
  EXPECT_EQ(written, (std::vector<Op>{Op::kGuardBlock, Op::kGuardMeta, Op::kAten, Op::kGuardBlock,
                                      Op::kGuardMeta, Op::kGuardMeta}));
  EXPECT_EQ(f.document.trace.operandsOf(f.code()[1])[0].id, 3U);
  EXPECT_EQ(f.document.trace.operandsOf(f.code()[4])[0].id, 4U);
  EXPECT_EQ(f.code()[5].snap, f.code()[3].snap);
  f.steps.writeHeldGuards();  // once
  EXPECT_EQ(f.code().size(), 6U);
}

TEST(Steps, TellIteratorsThatTheirContainersMayHaveChanged) {
  Fixture f;
  const pyapi::Ref<> list = value("[1]");
  const pyapi::Ref<> iterator = pyapi::steal(PyObject_GetIter(list.get()));
  const Shadow made = f.virtuals.add(VirtualKind::kIterator, iterator.get());
  EXPECT_FALSE(f.virtuals[made].unpinned);
  f.steps.readAgain();
  EXPECT_TRUE(f.virtuals[made].unpinned);
}

TEST(Steps, LeaveOutBlocksBehindOperatorsThatOnlyCompareTheState) {
  Fixture f;
  const ir::StateId snap = f.document.trace.addState({}, {}, {});
  const auto block = [&](bool guarded) {
    f.steps.readAgain();
    f.steps.emit(Op::kAten, {}, {}, snap);
    f.steps.flushBlock();
    const guard::BlockId id = f.blocks.newest();
    if (guarded) f.document.guards.guards.push_back({GuardKind::kType, id, 0, ir::kNone, ir::kNone, 0});
  };
  f.document.sources.nodes.push_back({SourceKind::kArg, ir::kNone, ir::kNone, 0, 0});
  block(false);
  block(true);
  block(false);
  block(true);
  f.document.sources.nodes.push_back({SourceKind::kArg, ir::kNone, ir::kNone, 1, 4});
  f.steps.dropStateBlocks();
  std::vector<int64_t> blocks;
  for (const ir::Instruction& ins : f.code()) {
    if (ins.op == Op::kGuardBlock) blocks.push_back(f.document.trace.operandsOf(ins)[0].i);
  }
  EXPECT_EQ(f.code().size(), 6U);
  EXPECT_EQ(blocks, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(f.blocks.newest(), 2U);
  EXPECT_EQ(f.document.sources.nodes[1].block, 2U);
  std::vector<guard::BlockId> of;
  for (const guard::Guard& g : f.document.guards.guards) of.push_back(g.block);
  EXPECT_EQ(of, (std::vector<guard::BlockId>{1, 1, 2, 2}));
}

TEST(Steps, WantAnExitForEachBlockThatChecksSomething) {
  Fixture f;
  const pyapi::Ref<> code = value("(lambda: 1).__code__");
  const ir::ConstId id = f.constants.add(code.get()).id;
  ir::FrameState state;
  state.code = id;
  state.rebuildable = false;
  const ir::StateId snap = f.document.trace.addState(state, {}, {});
  f.blocks.next();
  f.steps.emit(Op::kGuardBlock, {Operand::integer(1)}, {}, snap);
  f.steps.checkBlocks();
  EXPECT_TRUE(f.breaks.live);  // nothing is checked there
  f.document.guards.guards.push_back({GuardKind::kType, 1, 0, ir::kNone, ir::kNone, 0});
  f.steps.checkBlocks();
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0103));
}

TEST(Steps, TakeWhatUnknownCodeHasForOlder) {
  run("def made(): pass");
  Fixture f;
  const pyapi::Ref<> own = value("[]"), built = value("[]"), function = value("made"), tuple = value("(1,)");
  const Shadow kept = f.virtuals.add(VirtualKind::kList, own.get());
  const Shadow escaped = f.virtuals.add(VirtualKind::kList, built.get());
  const Shadow seen = f.virtuals.add(VirtualKind::kFunction, function.get());
  const Shadow fixed = f.virtuals.add(VirtualKind::kTuple, tuple.get());
  f.virtuals[escaped].value = f.virtuals[seen].value = f.virtuals[fixed].value = 1;
  f.steps.forgetEscapedObjects();
  EXPECT_EQ(f.virtuals[kept].kind, VirtualKind::kList);
  EXPECT_EQ(f.virtuals[escaped].kind, VirtualKind::kOpaque);
  EXPECT_TRUE(f.virtuals[seen].exposed);
  EXPECT_EQ(f.virtuals[fixed].kind, VirtualKind::kTuple);  // it can't change
}

TEST(Steps, EndWhereAWeakReferenceWouldTell) {
  run("import weakref\nclass Holder: pass\nholder = Holder()\nweak = weakref.ref(holder)");
  Fixture f;
  const pyapi::Ref<> holder = value("holder");
  f.virtuals[f.virtuals.add(VirtualKind::kInstance, holder.get())].value = 1;
  f.steps.forgetEscapedObjects();
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0302));
}

TEST(Steps, ForgetTheMetadataOfTensorsThatWereHandedOut) {
  run("class Tensor: pass\ntensor = Tensor()");
  Fixture f;
  const pyapi::Ref<> tensor = value("tensor");
  f.ops.bind(tensor.get(), 12, torchapi::MetaLevel::kFull);
  f.args = {tensor.get()};
  f.shadows = {Shadow::value(12)};
  Shadow result;
  f.step(CallKind::kKnown, result);
  EXPECT_TRUE(f.sizes.forgotten.empty());
  f.blocks.setPending(false);
  f.step(CallKind::kOpaque, result);
  EXPECT_EQ(f.sizes.forgotten, (std::vector<ir::ValueId>{12}));
  run("del Tensor");
}

// In a frame that stands at a call under a handler of the program.
void underHandler(const std::function<void(ShadowFrame&)>& body) {
  run("def guarded():\n"
      "  try: grab()\n"
      "  except ValueError: pass\n");
  test::inFrame("guarded()", [&](ShadowFrame& frame) {
    frame.act->pc = PyFrame_GetLasti(PyEval_GetFrame()) / 2 + 1;
    body(frame);
  });
}

TEST(Steps, EndAtAnOperationThatMayRaiseUnderAHandlerThatNoExitReaches) {
  underHandler([](ShadowFrame& frame) {
    Fixture f;
    f.frames.setCurrent(&frame);
    const ir::StateId good = f.snapshots.stateBefore();
    f.snapshots.rebuildable = false;
    const ir::StateId bad = f.snapshots.stateBefore();
    f.steps.emit(Op::kCallKnown, {}, {}, good);
    EXPECT_TRUE(f.breaks.live);
    f.surroundings.transform = true;  // torch's own handlers only leave the transform
    f.steps.emit(Op::kCallKnown, {}, {}, bad);
    EXPECT_TRUE(f.breaks.live);
    f.surroundings.transform = false;
    f.steps.emit(Op::kCallKnown, {}, {}, bad);
    EXPECT_TRUE(f.endedWith(diag::Code::KTG0103));
  });
}

TEST(Steps, CallCCodeOfImmutableClassesAsKnown) {
  run("class Holder: pass\nholder = Holder()");
  EXPECT_EQ(Fixture().steps.stepKind(value("1").get()), CallKind::kKnown);
  EXPECT_EQ(Fixture().steps.stepKind(value("holder").get()), CallKind::kOpaque);
}

}  // namespace
}  // namespace kintsugi::capture
