// Calls of torch. Their dispatcher calls are logged while they run, and become operators of the trace.
//
// If the log does not explain the result, the call is a step. That is so when Python code that is not torch's
// ran, or when a number was read from a tensor and decided something inside. Numbers of the trace are passed
// as symbolic numbers (torch_steps_symbolic.cc).
//
// Operators may run Python code of the program: kernels, dispatch modes, hooks for what autograd saves. They
// are operators of the trace like others, but everything is read again behind them.
//
// Ownership: borrows the tables; symbolic numbers refer to it while a call runs. Owned by the Recorder; the
// recording thread, GIL held. Example: return rec.torch.torchStep(call, result);
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "capture/call_context.h"
#include "capture/context_roles.h"
#include "capture/frame_roles.h"
#include "capture/roles.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/exception_log.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/size_reads.h"
#include "capture/tables/torch_calls.h"
#include "capture/tables/virtual_table.h"
#include "capture/torch_values.h"
#include "guard/document.h"
#include "torchapi/call_log.h"
#include "torchapi/sym_number.h"

namespace kintsugi::capture {

class TorchSteps final : private torchapi::NumberSink {
 public:
  // The recorder makes some of these parts after this one.
  struct Roles {
    BreakSink& breaks;
    SourceGuards& guards;
    RunTimePins& pins;
    StepArguments& arguments;
    KnownObjects& objects;
    SequenceReads& sequences;
    SnapshotMaker& snapshots;
    TraceWriter& writer;
    InstructionRunner& runner;
    CallSteps& steps;
    OpenSizes& sizes;
    BindingSizes& bindings;
    StepNumbers& numbers;
    TorchDetours& detours;
    StaleReads& stale;
  };
  TorchSteps(const Roles& roles, guard::Document& document, ExceptionLog& exceptions, FrameStack& frames,
             CurrentInstruction& instruction, torchapi::CallLog& log, const torchapi::TensorIds& tensors,
             SizeReads& sizeReads, TorchCalls& torchCalls, TorchValues& values, VirtualTable& virtuals)
      : roles_(roles),
        document_(document),
        exceptions_(exceptions),
        frames_(frames),
        instruction_(instruction),
        log_(log),
        tensors_(tensors),
        sizeReads_(sizeReads),
        torchCalls_(torchCalls),
        values_(values),
        virtuals_(virtuals) {}

  // Runs the instruction with the dispatcher's log on, and adds the logged operators to the trace.
  Flow torchStep(TorchCall& call, Shadow& result);
  // `a, b = tensor`
  Flow torchSequence(Activation& act, const Instr& instr, int pushed, int behind = -1);
  // Runs an operation of ours in the middle of an instruction. Nothing: it has raised.
  std::optional<Shadow> torchOperation(ir::StateId snap, pyapi::Ref<>& result,
                                       const std::function<PyObject*()>& operation);
  std::optional<bool> tensorTruth(Shadow shadow, PyObject* tensor, bool replace);

  // Arguments and results of such calls.
  const TorchValues& values() const { return values_; }

 private:
  void pinNumber(ir::ValueId value) override;
  Flow execute(TorchCall& call) { return roles_.runner.execute(call.act, call.instr); }
  std::optional<Flow> objectStep(TorchCall& call, Shadow& result);
  Flow collectiveStep(TorchCall& call, Shadow& result);
  bool takesArray(Shadow shadow, PyObject* object);
  void checkDrained(const torchapi::DrainResult& drained, ir::StateId snap);
  Flow executeLogged(TorchCall& call);
  bool mayChangeAnything() const;
  std::optional<Shadow> explainedResult(TorchCall& call, PyObject* object,
                                        const torchapi::DrainResult& drained);
  void undo(const torchapi::DrainResult& drained);

  // Numbers that are known only at run time: torch_steps_symbolic.cc
  std::optional<Shadows> partsOf(Shadow shadow, PyObject* object);
  using NumberCounts = std::map<ir::ValueId, int>;
  void countNumbers(Shadow shadow, PyObject* object, NumberCounts& counts);
  bool pinHiddenNumbers(TorchCall& call, Shadows& shadows);
  bool pinForTorch(Shadow& shadow, PyObject* object);
  pyapi::Ref<> symbolic(Shadow shadow, PyObject* object);
  pyapi::Ref<> hideSliceBounds(PyObject* key);
  Flow executeSymbolic(TorchCall& call);

  const Roles& roles_;
  guard::Document& document_;
  ExceptionLog& exceptions_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  torchapi::CallLog& log_;
  const torchapi::TensorIds& tensors_;
  SizeReads& sizeReads_;
  TorchCalls& torchCalls_;
  TorchValues& values_;
  VirtualTable& virtuals_;
};

}  // namespace kintsugi::capture
