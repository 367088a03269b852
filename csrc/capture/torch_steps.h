// Calls of torch. Their dispatcher calls are logged while they run, and become operators of the trace.
//
// If the log does not explain the result, the call is a step. That is so when Python code that is not torch's
// ran, or when a number was read from a tensor and decided something inside. Numbers of the trace are passed
// as symbolic numbers (torch_steps_symbolic.cc).
//
// Ownership: borrows the tables; symbolic numbers refer to it while a call runs. Owned by the Recorder; the
// recording thread, GIL held. Example: return rec.torch.torchStep(ctx, result);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <functional>

#include "capture/call_context.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/exception_log.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/torch_calls.h"
#include "capture/torch_values.h"
#include "guard/document.h"
#include "torchapi/op_recorder.h"
#include "torchapi/sym_number.h"

namespace kintsugi::capture {

struct RecordContext;

class TorchSteps final : private torchapi::NumberSink {
 public:
  TorchSteps(RecordContext& rec, guard::Document& document, ExceptionLog& exceptions, FrameStack& frames,
             CurrentInstruction& instruction, torchapi::OpRecorder& ops, TorchCalls& torchCalls,
             TorchValues& values)
      : rec_(rec),
        document_(document),
        exceptions_(exceptions),
        frames_(frames),
        instruction_(instruction),
        ops_(ops),
        torchCalls_(torchCalls),
        values_(values) {}

  // Runs the instruction with the dispatcher's log on, and adds the logged operators to the trace.
  Flow torchStep(CallContext& ctx, Shadow& result);
  Flow executeLogged(CallContext& ctx);
  // `a, b = tensor`
  Flow torchSequence(Activation& act, const Instr& instr, int pushed, int behind = -1);
  // Runs an operation of ours in the middle of an instruction. Nothing: it has raised.
  std::optional<Shadow> torchOperation(ir::StateId snap, pyapi::Ref<>& result,
                                       const std::function<PyObject*()>& operation);
  std::optional<bool> tensorTruth(Shadow shadow, PyObject* tensor, bool replace);

  // Arguments and results of such calls.
  const TorchValues& values() const { return values_; }
  torchapi::NumberSink& numberSink() { return *this; }

 private:
  void pinNumber(ir::ValueId value) override;
  bool pinForTorch(Shadow& shadow, PyObject* object);
  pyapi::Ref<> symbolic(Shadow shadow, PyObject* object);
  Flow executeSymbolic(CallContext& ctx);
  void undo(const torchapi::DrainResult& drained);

  RecordContext& rec_;
  guard::Document& document_;
  ExceptionLog& exceptions_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  torchapi::OpRecorder& ops_;
  TorchCalls& torchCalls_;
  TorchValues& values_;
};

}  // namespace kintsugi::capture
