// Fakes of what the parts that record calls of torch ask of others, beside those of fakes.h.
//
// Example: a TorchSteps over fakes is made by `Fixture` of torch_steps_test.cc, Steps by that of
// steps_test.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "capture/tables/torch_calls.h"
#include "torchapi/call_log.h"
#include "unit/capture/fake_torch.h"
#include "unit/capture/fakes.h"

namespace kintsugi::capture::test {

// Tuples of the trace, and cells that are known by their content.
struct FakeTuples final : FrameObjects {
  explicit FakeTuples(VirtualTable& table) : virtuals(table) {}
  VirtualTable& virtuals;
  Shadow tupleOf(PyObject* tuple, Shadows parts) override {
    const Shadow made = virtuals.add(VirtualKind::kTuple, tuple);
    virtuals[made].parts = std::move(parts);
    return made;
  }
  Shadow newCell(PyObject*, Shadow content) override { return content; }
  std::optional<Shadow> closureCell(ShadowFrame&, int, PyObject*) override { return std::nullopt; }
  std::optional<Shadow> elementOf(Shadow, PyObject*, Py_ssize_t) override { return std::nullopt; }
};

// No size is open.
struct FakeSizes final : OpenSizes {
  std::vector<ir::ValueId> forgotten;
  uint64_t openSizes(ir::SourceId, PyObject*) override { return 0; }
  uint64_t openSizesOf(ir::ValueId) override { return 0; }
  void guardRanges(ir::SourceId, PyObject*) override {}
  bool pinMeta(Shadow, PyObject*) override { return true; }
  void forgetMeta(ir::ValueId tensor) override { forgotten.push_back(tensor); }
};

// A log that a test writes. Its operators are instructions without operands.
struct FakeLog final : torchapi::CallLog, torchapi::TensorIds {
  int on = 0;
  bool effects = false;
  torchapi::DrainResult result;  // of the next drain; `count` and `scalars` are those of the calls
  std::vector<std::pair<PyObject*, ir::TypeKind>> calls;  // what they gave: tensors, or numbers
  std::map<PyObject*, ir::ValueId> values;
  std::map<ir::ValueId, torchapi::MetaLevel> levels;  // others are fully known
  std::vector<ir::ValueId> forgotten;
  size_t drained = 0, discarded = 0;

  // A tensor that the trace knows.
  void bind(PyObject* tensor, ir::ValueId value, torchapi::MetaLevel level) {
    values[tensor] = value;
    levels[value] = level;
  }
  // An operator that gives this tensor.
  void gave(PyObject* tensor) { calls.emplace_back(tensor, ir::TypeKind::kTensor); }
  // An operator that gives a number.
  void read(ir::TypeKind kind, int64_t number) {
    calls.emplace_back(nullptr, kind);
    result.scalars.push_back({ir::kNone, kind, number, 0.0});
  }

  void resume() override { ++on; }
  void pause() override { --on; }
  bool hasEffects() const override { return effects; }
  torchapi::DrainResult drain(ir::Trace& trace, ir::StateId snap) override {
    ++drained;
    torchapi::DrainResult done = result;
    size_t scalar = 0;
    for (const auto& [tensor, kind] : calls) {
      if (done.status != torchapi::DrainResult::kOk) break;
      const ir::Type type{kind, ir::kNone};
      const size_t at = trace.append(ir::Op::kAten, {}, {&type, 1}, snap);
      const ir::ValueId value = trace.code[at].firstResult;
      if (tensor != nullptr) values[tensor] = value;
      if (tensor == nullptr) done.scalars[scalar++].value = value;
      ++done.count;
    }
    calls.clear();
    return done;
  }
  void discard() override {
    ++discarded;
    calls.clear();
  }
  void forget(ir::ValueId value) override { forgotten.push_back(value); }
  std::optional<ir::ValueId> valueOf(PyObject* tensor) const override {
    const auto found = values.find(tensor);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
  torchapi::MetaLevel level(ir::ValueId value) const override {
    const auto found = levels.find(value);
    return found == levels.end() ? torchapi::MetaLevel::kFull : found->second;
  }
};

// A frame that runs the instruction of a call: it runs `during`, pops `popped` arguments, and pushes `gives`;
// null: it raises ValueError. `handsOver`: the reference that `gives` is goes with it, so that nobody else
// holds it.
struct FakeActivation final : Activation {
  Instr instr{};
  PyObject* stack[8] = {};
  PyObject* gives = Py_None;
  bool handsOver = false;
  std::function<void(Activation&)> during;
  size_t popped = 0;
  int runs = 0;

  FakeActivation() : Activation{} {
    sp = stack;
    instr.run = run;
  }
  ~FakeActivation() {
    PyErr_Clear();
    while (sp > stack) Py_XDECREF(*--sp);
  }
  FakeActivation(const FakeActivation&) = delete;
  FakeActivation& operator=(const FakeActivation&) = delete;

 private:
  static Flow run(Activation& act, const Instr&) {
    auto& own = static_cast<FakeActivation&>(act);
    ++own.runs;
    if (own.during) own.during(act);
    for (size_t i = 0; i < own.popped; ++i) Py_DECREF(*--act.sp);
    if (own.gives == nullptr) {
      PyErr_SetNone(PyExc_ValueError);
      return Flow::kRaise;
    }
    *act.sp++ = own.handsOver ? own.gives : Py_NewRef(own.gives);
    return Flow::kNext;
  }
};

// Steps that are written.
struct FakeSteps final : CallSteps, InstructionRunner {
  struct Step {
    std::string how;  // the function that was asked
    CallKind kind;
  };
  std::vector<Step> steps;
  bool haveOperands = true;
  bool canRaise = true;
  Shadow made = Shadow::source(81);  // the results of steps

  Flow execute(Activation& act, const Instr& instr) override { return act.execute(instr); }
  Flow callStep(CallValues& call, CallKind kind, const char*, Shadow& result) override {
    steps.push_back({"call", kind});
    result = made;
    return execute(call.act, call.instr);
  }
  Flow replaceCall(CallValues& call, pyapi::Ref<> result) override {
    steps.push_back({"replace", CallKind::kPure});
    for (size_t i = 0; i < call.popped; ++i) Py_DECREF(*--call.act.sp);
    *call.act.sp++ = result.release();
    return Flow::kNext;
  }
  Shadow appendCall(CallValues&, CallKind kind, const std::vector<ir::Operand>&, ir::StateId,
                    PyObject*) override {
    steps.push_back({"append", kind});
    return made;
  }
  bool recordRaised(CallValues&, CallKind kind, std::vector<ir::Operand>, ir::StateId) override {
    steps.push_back({"raise", kind});
    return canRaise;
  }
  bool quietOperands(CallValues&, std::vector<ir::Operand>&) override { return haveOperands; }
};

// Pins of arguments and of numbers. A number that is pinned is a constant from then on.
struct FakePins final : RunTimePins {
  explicit FakePins(TorchCalls& torchCalls) : calls(torchCalls) {}
  TorchCalls& calls;
  std::vector<PyObject*> deep;
  std::vector<std::pair<ir::ValueId, bool>> truths;
  std::vector<std::pair<ir::ValueId, int64_t>> numbers;

  bool pinDeep(Shadow& shadow, PyObject* object) override {
    deep.push_back(object);
    if (shadow.isValue() && PyLong_Check(object)) calls.pinNumber(shadow.valueId());
    if (!shadow.isValue() || PyLong_Check(object)) shadow = Shadow::constant();
    return true;
  }
  bool guardTruth(ir::ValueId value, bool truth) override {
    truths.emplace_back(value, truth);
    return true;
  }
  bool guardAsRead(ir::ValueId value, PyObject* number) override { return guardScalar(value, number); }
  bool guardScalar(ir::ValueId value, PyObject* number) override {
    numbers.emplace_back(value, PyLong_AsLongLong(number));
    return true;
  }
};

// Bindings decide on no size but where a test says so.
struct FakeBindings final : BindingSizes {
  bool canPinGivenBack = true, slices = false;
  size_t pinned = 0;
  bool pinLikely(Shadow, PyObject*) override { return true; }
  bool pinGivenBack(ir::StateId) override { return canPinGivenBack; }
  bool pinForBinding(const TorchCall&, Shadow, PyObject*) override {
    ++pinned;
    return true;
  }
  bool decidesOnSlices(const TorchCall&) const override { return slices; }
};

struct FakeStepNumbers final : StepNumbers {
  Shadow promoted(Shadow shadow, PyObject*) override { return shadow; }
};

// No call is recorded in another way but where a test says so.
struct FakeDetours final : TorchDetours {
  bool modes = false, lists = false, sizes = false;
  std::optional<Flow> underFunctionModes(const TorchCall&, Shadow&) override { return taken(modes); }
  std::optional<Flow> joinOpenList(const TorchCall&, Shadow&) override { return taken(lists); }
  std::optional<Flow> readSizes(const TorchCall&, Shadow&) override { return taken(sizes); }
  static std::optional<Flow> taken(bool taken) { return taken ? std::optional(Flow::kNext) : std::nullopt; }
};

}  // namespace kintsugi::capture::test
