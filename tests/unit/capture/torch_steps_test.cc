#include "capture/torch_steps.h"

#include "unit/capture/read_fakes.h"
#include "unit/capture/torch_fakes.h"

namespace kintsugi::capture {
namespace {

using ir::TypeKind;
using test::fakeTorch;
using test::run;
using test::value;
using torchapi::DrainResult;
using torchapi::MetaLevel;

struct Fixture {
  Fixture() {
    run("class Tensor: pass\n"
        "class Symbolic:\n"
        "  def __init__(self, value, number): self.value, self.number = value, number");
    fakeTorch() = {};
    frame.act = &act;
    frames.setCurrent(&frame);
    ir::FrameState state;
    document.trace.addState(state, {}, {});
  }
  ~Fixture() {
    PyErr_Clear();
    run("globals().pop('Tensor', None); globals().pop('Symbolic', None)");
    fakeTorch() = {};
    EXPECT_EQ(log.on, 0);  // the log is off behind each call
    EXPECT_FALSE(calls.isInside());
  }
  guard::Document document;
  VirtualTable virtuals;
  FrameStack frames;
  ExceptionLog exceptions;
  CurrentInstruction instruction;
  SizeReads sizeReads;
  TorchCalls calls;
  test::FakeBreaks breaks;
  test::FakeGuards guards;
  test::FakePins pins{calls};
  test::FakeObjects objects{virtuals};
  test::FakeSequences sequences;
  test::FakeTuples tuples{virtuals};
  test::FakeSnapshots snapshots{virtuals, document.trace};
  test::FakeWriter writer{document.trace};
  test::FakeSteps steps;
  test::FakeSizes sizes;
  test::FakeBindings bindings;
  test::FakeStepNumbers numbers;
  test::FakeDetours detours;
  test::FakeReads stale;
  test::FakeLog log;
  TorchValues values{objects, tuples, log, calls, virtuals};
  TorchSteps::Roles roles{breaks, guards, pins,  guards,   objects, sequences, snapshots, writer,
                          steps,  steps,  sizes, bindings, numbers, detours,   stale};
  TorchSteps torch{roles, document,  exceptions, frames, instruction, log,
                   log,   sizeReads, calls,      values, virtuals};

  // A call of `callable` with arguments that a test adds.
  ShadowFrame frame;
  test::FakeActivation act;
  pyapi::Ref<> callable = value("print"), given, made;
  std::vector<PyObject*> args;
  Shadows shadows;
  Shadow result;

  void add(PyObject* object, Shadow shadow) {
    args.push_back(object);
    shadows.push_back(shadow);
    frame.push(shadow);
    *act.sp++ = Py_NewRef(object);
  }
  // A value of the trace that no instruction of the test makes.
  ir::ValueId valueOfKind(TypeKind kind) {
    const ir::Type type{kind, ir::kNone};
    const size_t at = document.trace.append(ir::Op::kInput, {}, {&type, 1}, ir::kNone);
    return document.trace.code[at].firstResult;
  }
  Flow step(bool onlyReads = false) {
    TorchCall call(frame, act, act.instr);
    call.set(callable.get(), Shadow::constant(), args.data(), shadows.data(), args.size());
    call.popped = act.popped = args.size();
    call.onlyReadsMetadata = onlyReads;
    return torch.torchStep(call, result);
  }
  // A call that is given a tensor of the trace, and runs an operator that makes another one.
  Flow stepOfOperator(const std::function<void()>& besides) {
    given = value("Tensor()");
    made = value("Tensor()");
    add(given.get(), Shadow::value(valueOfKind(TypeKind::kTensor)));
    act.gives = made.get();
    act.during = [this, besides](Activation&) {
      log.gave(made.get());
      besides();
    };
    return step();
  }
  size_t operators() const {
    size_t count = 0;
    for (const ir::Instruction& ins : document.trace.code) count += ins.op == ir::Op::kAten ? 1U : 0U;
    return count;
  }
  bool endedWith(diag::Code why) const { return breaks.ends == std::vector<diag::Code>{why}; }
  bool wrote(const char* how, CallKind kind) const {
    return steps.steps.size() == 1 && steps.steps[0].how == how && steps.steps[0].kind == kind;
  }
};

TEST(TorchSteps, MakeLoggedOperatorsTheTraces) {
  Fixture f;
  const pyapi::Ref<> given = value("Tensor()"), made = value("Tensor()");
  f.add(given.get(), Shadow::value(f.valueOfKind(TypeKind::kTensor)));
  f.act.gives = made.get();
  f.act.during = [&](Activation&) {
    EXPECT_EQ(f.log.on, 1);
    EXPECT_TRUE(f.calls.isInside());
    f.log.gave(made.get());
  };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.operators(), 1U);
  EXPECT_EQ(f.result, Shadow::value(f.log.values.at(made.get())));
  EXPECT_TRUE(f.steps.steps.empty());
  EXPECT_TRUE(f.breaks.live);
}

TEST(TorchSteps, MakeACallAStepWhoseResultTheLogDoesNotExplain) {
  Fixture f;
  const pyapi::Ref<> given = value("Tensor()"), other = value("Tensor()"), unknown = value("Tensor()");
  f.add(given.get(), Shadow::value(f.valueOfKind(TypeKind::kTensor)));
  f.act.gives = unknown.get();
  f.act.during = [&](Activation&) { f.log.gave(other.get()); };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.operators(), 0U);  // what was drained is taken back
  EXPECT_EQ(f.log.forgotten, (std::vector<ir::ValueId>{f.log.values.at(other.get())}));
  EXPECT_TRUE(f.wrote("append", CallKind::kKnown));
  EXPECT_EQ(f.result, f.steps.made);
  EXPECT_TRUE(f.breaks.live);
}

TEST(TorchSteps, DoNotTakeAConstantForTheResultOfNothing) {
  Fixture f;
  const pyapi::Ref<> given = value("Tensor()");
  f.add(given.get(), Shadow::value(f.valueOfKind(TypeKind::kTensor)));
  EXPECT_EQ(f.step(), Flow::kNext);  // None, and no operator
  EXPECT_TRUE(f.wrote("append", CallKind::kKnown));
  Fixture reads;
  const pyapi::Ref<> read = value("Tensor()");
  reads.add(read.get(), Shadow::value(reads.valueOfKind(TypeKind::kTensor)));
  EXPECT_EQ(reads.step(true), Flow::kNext);  // it follows from metadata
  EXPECT_EQ(reads.result, Shadow::constant());
  EXPECT_TRUE(reads.steps.steps.empty());
}

TEST(TorchSteps, EndIfTheCallCanBeNeitherOperatorsNorAStep) {
  Fixture f;
  const pyapi::Ref<> unknown = value("Tensor()");
  f.act.gives = unknown.get();
  f.steps.haveOperands = false;
  f.log.result.status = DrainResult::kUnsupported;
  f.log.result.detail = "an operator";
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0301));
  EXPECT_NE(f.breaks.reasons[0].find(" by an operator"), std::string::npos);
}

TEST(TorchSteps, DoNotTrustTheLogOfACallThatRanPython) {
  Fixture f;
  EXPECT_EQ(f.stepOfOperator([&] { f.calls.setTainted(true); }), Flow::kNext);
  EXPECT_EQ(f.log.drained, 0U);
  EXPECT_EQ(f.log.discarded, 1U);
  EXPECT_TRUE(f.wrote("append", CallKind::kOpaque));
}

TEST(TorchSteps, ReadEverythingAgainBehindAnOperatorThatRanCodeOfTheProgram) {
  Fixture f;
  EXPECT_EQ(f.stepOfOperator([&] { f.calls.noteProgramRan(); }), Flow::kNext);
  EXPECT_EQ(f.operators(), 1U);
  EXPECT_TRUE(f.steps.steps.empty());
  EXPECT_EQ(f.stale.calls, "again ");
}

TEST(TorchSteps, ReadEverythingAgainBehindOperatorsUnderAMode) {
  Fixture f;
  fakeTorch().unseenCode = true;
  EXPECT_EQ(f.stepOfOperator([] {}), Flow::kNext);
  EXPECT_EQ(f.stale.calls, "again ");
}

TEST(TorchSteps, TakeAStepThatRanCodeOfTheProgramForOpaque) {
  Fixture f;
  const pyapi::Ref<> given = value("Tensor()"), unknown = value("Tensor()");
  f.add(given.get(), Shadow::value(f.valueOfKind(TypeKind::kTensor)));
  f.act.gives = unknown.get();
  f.act.during = [&](Activation&) { f.calls.noteProgramRan(); };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.wrote("append", CallKind::kOpaque));
  EXPECT_EQ(f.stale.calls, "forget ");
}

TEST(TorchSteps, MakeACallAStepThatMayGiveItsArgumentBack) {
  Fixture f;
  const pyapi::Ref<> made = value("Tensor()");
  f.act.gives = made.get();
  f.act.during = [&](Activation&) { f.log.gave(made.get()); };
  f.bindings.canPinGivenBack = false;
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.log.drained, 0U);
  EXPECT_TRUE(f.wrote("append", CallKind::kKnown));
}

TEST(TorchSteps, NeedAnExitWhereASizeSaysHowManyTensorsThereAre) {
  Fixture f;
  const pyapi::Ref<> made = value("Tensor()");
  f.act.gives = made.get();
  f.act.during = [&](Activation&) { f.log.gave(made.get()); };
  f.log.result.exits = true;
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.breaks.live);
  f.snapshots.rebuildable = false;
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0103));
}

TEST(TorchSteps, ForgetSizesThatAnOperatorMayChange) {
  Fixture f;
  const pyapi::Ref<> made = value("Tensor()");
  f.act.gives = made.get();
  f.act.during = [&](Activation&) { f.log.gave(made.get()); };
  f.sizeReads.add(3, ir::Op::kSize, 0, 4);
  f.step();
  EXPECT_TRUE(f.sizeReads.find(3, ir::Op::kSize, 0).has_value());
  f.log.result.mutated = true;
  f.step();
  EXPECT_FALSE(f.sizeReads.find(3, ir::Op::kSize, 0).has_value());
}

TEST(TorchSteps, HandNumbersOfTheTraceInAsSymbolicOnes) {
  Fixture f;
  const pyapi::Ref<> seven = value("7"), made = value("Tensor()");
  const ir::ValueId number = f.valueOfKind(TypeKind::kInt);
  f.add(seven.get(), Shadow::value(number));
  f.act.gives = made.get();
  f.act.during = [&](Activation& act) {
    EXPECT_STREQ(Py_TYPE(act.peek(1))->tp_name, "Symbolic");
    f.log.gave(made.get());
  };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.pins.numbers.empty());
  EXPECT_EQ(f.result, Shadow::value(f.log.values.at(made.get())));
  EXPECT_EQ(f.calls.numberOf(number), nullptr);  // only while the call runs
}

TEST(TorchSteps, PinANumberThatABindingAsksFor) {
  Fixture f;
  const pyapi::Ref<> seven = value("7"), made = value("Tensor()");
  const ir::ValueId number = f.valueOfKind(TypeKind::kInt);
  f.add(seven.get(), Shadow::value(number));
  f.act.gives = made.get();
  f.act.during = [&](Activation&) {
    fakeTorch().sink->pinNumber(number);
    f.log.gave(made.get());
  };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.pins.numbers, (std::vector<std::pair<ir::ValueId, int64_t>>{{number, 7}}));
  EXPECT_TRUE(f.steps.steps.empty());
}

TEST(TorchSteps, TakeSymbolicNumbersOutOfTheResult) {
  Fixture f;
  const pyapi::Ref<> seven = value("7");
  const ir::ValueId number = f.valueOfKind(TypeKind::kInt);
  f.add(seven.get(), Shadow::value(number));
  pyapi::Ref<> given;
  f.act.during = [&](Activation& act) { given = pyapi::newRef(f.act.gives = act.peek(1)); };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.act.peek(1), seven.get());
}

TEST(TorchSteps, HandInRealNumbersWhereOthersWouldBeSeen) {
  for (const bool modes : {false, true}) {
    Fixture f;
    const pyapi::Ref<> seven = value("7"), made = value("Tensor()");
    f.add(seven.get(), Shadow::value(f.valueOfKind(TypeKind::kInt)));
    if (modes)
      fakeTorch().modes = true;
    else
      f.callable = value("lambda x: x");  // Python code of torch's
    f.act.during = [&](Activation& act) {
      EXPECT_EQ(act.peek(1), seven.get());
      f.log.gave(made.get());
    };
    EXPECT_EQ(f.step(), Flow::kNext);
    EXPECT_EQ(f.pins.deep, (std::vector<PyObject*>{seven.get()}));
  }
}

TEST(TorchSteps, PinNumbersThatAreNotOnTheStack) {
  Fixture f;
  const pyapi::Ref<> seven = value("7"), made = value("Tensor()");
  f.add(seven.get(), Shadow::value(f.valueOfKind(TypeKind::kInt)));
  f.frame.stack[0] = Shadow::constant();  // **keywords
  f.act.gives = made.get();
  f.act.during = [&](Activation&) { f.log.gave(made.get()); };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.pins.deep, (std::vector<PyObject*>{seven.get()}));
}

TEST(TorchSteps, CallAgainWithRealNumbersIfTheBindingRefusesSymbolicOnes) {
  Fixture f;
  const pyapi::Ref<> seven = value("7"), made = value("Tensor()");
  f.add(seven.get(), Shadow::value(f.valueOfKind(TypeKind::kInt)));
  f.act.during = [&](Activation& act) {
    f.act.gives = f.act.runs == 1 ? nullptr : made.get();
    if (f.act.runs == 1) return;
    EXPECT_EQ(act.peek(1), seven.get());  // the stack is as it was
    EXPECT_EQ(PyErr_Occurred(), nullptr);
    f.log.gave(made.get());
  };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.act.runs, 2);
  EXPECT_EQ(f.pins.deep, (std::vector<PyObject*>{seven.get()}));
  EXPECT_EQ(f.result, Shadow::value(f.log.values.at(made.get())));
}

TEST(TorchSteps, DoNotCallAgainWhatHasDoneSomething) {
  Fixture f;
  const pyapi::Ref<> seven = value("7");
  f.add(seven.get(), Shadow::value(f.valueOfKind(TypeKind::kInt)));
  f.act.gives = nullptr;
  f.log.effects = true;
  EXPECT_EQ(f.step(), Flow::kRaise);
  EXPECT_EQ(f.act.runs, 1);
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_ValueError));
  EXPECT_TRUE(f.wrote("raise", CallKind::kKnown));
  EXPECT_FALSE(f.exceptions.isUnsafe());
  EXPECT_EQ(f.log.discarded, 1U);
}

TEST(TorchSteps, AllowNoHandlerOfAnExceptionThatNoStepRaises) {
  Fixture f;
  f.act.gives = nullptr;
  f.steps.canRaise = false;
  EXPECT_EQ(f.step(), Flow::kRaise);
  EXPECT_TRUE(f.exceptions.isUnsafe());
  PyErr_Clear();
  Fixture other;
  other.act.gives = nullptr;
  other.steps.haveOperands = false;
  EXPECT_EQ(other.step(), Flow::kRaise);
  EXPECT_TRUE(other.exceptions.isUnsafe());
  EXPECT_TRUE(other.steps.steps.empty());
}

TEST(TorchSteps, WantANumberThatWasReadToBeTheResult) {
  Fixture f;
  const pyapi::Ref<> seven = value("7");
  f.act.gives = seven.get();
  f.act.during = [&](Activation&) { f.log.read(TypeKind::kInt, 7); };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.result.isValue());
  Fixture decided;  // a tensor's number has decided something inside
  const pyapi::Ref<> made = value("Tensor()");
  decided.act.gives = made.get();
  decided.act.during = [&](Activation&) {
    decided.log.read(TypeKind::kInt, 7);
    decided.log.gave(made.get());
  };
  EXPECT_EQ(decided.step(), Flow::kNext);
  EXPECT_EQ(decided.operators(), 0U);
  EXPECT_TRUE(decided.wrote("append", CallKind::kKnown));
}

TEST(TorchSteps, DoNotTrustNumbersThatPythonMayHaveComputedWith) {
  Fixture f;
  const pyapi::Ref<> seven = value("7");
  f.callable = value("lambda: 7");
  f.act.gives = seven.get();
  f.act.during = [&](Activation&) { f.log.read(TypeKind::kInt, 7); };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.wrote("append", CallKind::kKnown));
  EXPECT_EQ(f.operators(), 0U);
}

TEST(TorchSteps, AskBindingsOnlyAboutOpenSizes) {
  Fixture f;
  const pyapi::Ref<> tensor = value("Tensor()"), made = value("Tensor()");
  const ir::ValueId known = f.valueOfKind(TypeKind::kTensor);
  f.add(tensor.get(), Shadow::value(known));
  f.act.gives = made.get();
  f.act.during = [&](Activation&) { f.log.gave(made.get()); };
  f.step();
  EXPECT_EQ(f.bindings.pinned, 0U);
  Fixture open;
  const pyapi::Ref<> other = value("Tensor()"), result = value("Tensor()");
  const ir::ValueId varies = open.valueOfKind(TypeKind::kTensor);
  open.add(other.get(), Shadow::value(varies));
  open.log.levels[varies] = MetaLevel::kRank;
  open.act.gives = result.get();
  open.act.during = [&](Activation&) { open.log.gave(result.get()); };
  open.step();
  EXPECT_EQ(open.bindings.pinned, 1U);
}

TEST(TorchSteps, HideBoundsOfSlicesFromABindingThatDecidesOnThem) {
  Fixture f;
  const pyapi::Ref<> tensor = value("Tensor()"), key = value("(slice(0, 3), None)"), made = value("Tensor()");
  const ir::ValueId varies = f.valueOfKind(TypeKind::kTensor);
  f.add(tensor.get(), Shadow::value(varies));
  f.add(key.get(), Shadow::constant());
  f.log.levels[varies] = MetaLevel::kRank;
  f.bindings.slices = true;
  f.act.gives = made.get();
  f.act.during = [&](Activation& act) {
    PyDict_SetItemString(test::names(), "key", act.peek(1));
    EXPECT_TRUE(test::holds("type(key[0].stop) is Symbolic and key[0].stop.number == 3 and key[1] is None"));
    run("del key");
    f.log.gave(made.get());
  };
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.steps.steps.empty());
}

TEST(TorchSteps, LeaveOtherWaysToOthers) {
  Fixture f;
  f.detours.lists = true;
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_EQ(f.act.runs, 0);
  Fixture modes;
  fakeTorch().functionModes = true;
  modes.detours.modes = true;
  EXPECT_EQ(modes.step(), Flow::kNext);
  EXPECT_EQ(modes.act.runs, 0);
  modes.detours.modes = false;  // nobody knows what the mode does
  EXPECT_EQ(modes.step(), Flow::kNext);
  EXPECT_TRUE(modes.wrote("call", CallKind::kOpaque));
}

TEST(TorchSteps, MakeCallsOfTensorsThatTheTraceCannotDescribeSteps) {
  Fixture f;
  run("sparse = Tensor()\nsparse.foreign = True");
  const pyapi::Ref<> tensor = value("sparse");
  f.add(tensor.get(), Shadow::source(3));
  EXPECT_EQ(f.step(), Flow::kNext);
  EXPECT_TRUE(f.wrote("call", CallKind::kOpaque));
  EXPECT_EQ(f.log.drained, 0U);
}

TEST(TorchSteps, RecordAnOperationInTheMiddleOfAnInstruction) {
  Fixture f;
  const pyapi::Ref<> made = value("Tensor()");
  pyapi::Ref<> given;
  const auto shadow = f.torch.torchOperation(0, given, [&] {
    f.log.gave(made.get());
    return Py_NewRef(made.get());
  });
  EXPECT_EQ(given.get(), made.get());
  EXPECT_EQ(shadow, Shadow::value(f.log.values.at(made.get())));
  EXPECT_FALSE(f.torch.torchOperation(0, given, [] { return PyErr_Format(PyExc_ValueError, "no"); }));
  EXPECT_TRUE(f.exceptions.isUnsafe());
  PyErr_Clear();
  EXPECT_TRUE(f.torch.torchOperation(0, given, [] { return Py_NewRef(Py_None); }));  // from nowhere
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0301));
}

TEST(TorchSteps, UnpackATensorByTheLog) {
  Fixture f;
  const pyapi::Ref<> tensor = value("Tensor()"), row = value("Tensor()");
  f.add(tensor.get(), Shadow::value(f.valueOfKind(TypeKind::kTensor)));
  f.act.popped = 1;
  f.act.gives = row.get();
  f.act.during = [&](Activation&) { f.log.gave(row.get()); };
  EXPECT_EQ(f.torch.torchSequence(f.act, f.act.instr, 1), Flow::kNext);
  EXPECT_EQ(f.frame.stack, (Shadows{Shadow::value(f.log.values.at(row.get()))}));
  f.act.during = [&](Activation&) { f.calls.setTainted(true); };  // a mode
  EXPECT_EQ(f.torch.torchSequence(f.act, f.act.instr, 1), Flow::kNext);
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0301));
}

TEST(TorchSteps, GuardTheTruthOfATensor) {
  Fixture f;
  run("class Tensor:\n"
      "  def __bool__(self): return truth()");
  static Fixture* now = nullptr;
  now = &f;
  static PyMethodDef definition = {"truth",
                                   [](PyObject*, PyObject*) {
                                     now->log.read(TypeKind::kBool, 1);
                                     return Py_NewRef(Py_True);
                                   },
                                   METH_NOARGS, nullptr};
  const pyapi::Ref<> truth = pyapi::steal(PyCFunction_New(&definition, nullptr));
  PyDict_SetItemString(test::names(), "truth", truth.get());
  const pyapi::Ref<> tensor = value("Tensor()");
  const Shadow shadow = Shadow::value(f.valueOfKind(TypeKind::kTensor));
  f.add(tensor.get(), shadow);
  EXPECT_EQ(f.torch.tensorTruth(shadow, tensor.get(), true), true);
  ASSERT_EQ(f.pins.truths.size(), 1U);
  EXPECT_TRUE(f.pins.truths[0].second);
  EXPECT_EQ(f.act.peek(1), Py_True);
  fakeTorch().modes = true;  // it must be asked once
  EXPECT_FALSE(f.torch.tensorTruth(shadow, tensor.get(), true).has_value());
  EXPECT_TRUE(f.endedWith(diag::Code::KTG0301));
}

}  // namespace
}  // namespace kintsugi::capture
