// Python functions that recorded code calls: they are announced before the call, their parameters are bound
// when the frame is entered, and their result is taken when it returns.
//
// The caller's instruction is not finished meanwhile. Its call site says what a snapshot inside the callee
// has to know about the caller. A generator is a callee whenever it runs.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   rec.callees.expectFrame(rec.callees.methodFrame(function, shadow, object));
//   const Flow flow = rec.execute(act, instr);
//   frame.push(rec.callees.returned());
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/call_context.h"
#include "capture/capture_result.h"
#include "capture/finalizer_tracker.h"
#include "capture/frame_roles.h"
#include "capture/roles.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/expected_frames.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/pauses.h"
#include "capture/tables/torch_calls.h"
#include "capture/tables/virtual_table.h"
#include "capture/tables/watched_generators.h"

namespace kintsugi::capture {

class Callees final : public GeneratorCloser, public FrameCalls {
 public:
  struct Roles {
    BreakSink& breaks;
    SourceGuards& guards;
    ValuePins& values;
    ContainerPins& containers;
    FunctionPins& functions;
    KnownObjects& known;
    ContainerReads& reads;
    FrameObjects& objects;
    TraceWriter& writer;
    InstructionRunner& runner;
    SnapshotMaker& snapshots;
    FrameStates& states;
  };
  // The recorder makes the last two after this part.
  Callees(const Roles& roles, ExpectedFrames& expected, FinalizerTracker& finalizers, FrameStack& frames,
          CurrentInstruction& instruction, const RecorderOptions& options, Pauses& pauses,
          TorchCalls& torchCalls, VirtualTable& virtuals, WatchedGenerators& watched)
      : roles_(roles),
        expected_(expected),
        finalizers_(finalizers),
        frames_(frames),
        instruction_(instruction),
        options_(options),
        pauses_(pauses),
        torchCalls_(torchCalls),
        virtuals_(virtuals),
        watched_(watched) {}

  // Before the call: announces the frame that it will enter, and a frame that follows.
  void expectFrame(PendingFrame pending) override;
  // After the first has returned.
  void expectThen(PendingFrame next) { expected_.expectNext(std::move(next)); }
  PendingFrame methodFrame(PyObject* function, Shadow self, PyObject* object) override;
  // After the call.
  Shadow returned() override;
  Shadow frameResult(PyObject* object);  // the frame's result, or a generator object
  bool recordReturn(ShadowFrame& frame, Shadow shadow, PyObject* object);

  // Calls a Python function in place of the instruction.
  Flow callInPlace(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function, int count,
                   const std::vector<PyObject*>& constants = {},
                   ir::ReturnAction action = ir::ReturnAction::kPush);
  // Replaces the iterable that is stack entry `at` from the top (1 or 2) by a list of its items, before the
  // instruction runs that would have consumed it. False: an exception was raised.
  bool listItems(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function, PyObject* limit,
                 int at = 1);

  // CPython enters a frame. False if it was not expected.
  bool acceptFrame(Activation& act);
  bool enterGeneratorFunction(pyapi::Frame* frame);  // just called: CPython makes the generator
  bool throwsInto(Activation& act) const;
  void closeGenerator(Virtual& generator) override;
  // The consumer of a generator is about to take all of its items.
  void expectItems(Shadow generator);
  Shadows takeItems();

  bool isOpaqueCode(PyObject* code) const;
  void superArguments(ShadowFrame& frame, PyObject*& type, PyObject*& self, Shadow& selfShadow);
  static bool answersCompiling(PyObject* function);
  Flow answerCompiling(CallContext& ctx, Shadow& result);

 private:
  bool resumeGenerator(Activation& act, Virtual& generator);
  std::optional<Shadow> defaultOf(PyObject* function, Shadow shadow, int parameter, PyObject* object);
  void bindNewSelf(ShadowFrame& frame, PyObject* self, PendingFrame& pending);
  bool bindArguments(ShadowFrame& frame, Activation& act, PendingFrame& pending);

  const Roles& roles_;
  ExpectedFrames& expected_;
  FinalizerTracker& finalizers_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  const RecorderOptions& options_;
  Pauses& pauses_;
  TorchCalls& torchCalls_;
  VirtualTable& virtuals_;
  WatchedGenerators& watched_;
};

}  // namespace kintsugi::capture
