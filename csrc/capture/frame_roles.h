// What the parts of a recording ask of one another about frames and calls: small abstract classes, as in
// roles.h.
//
// Owned by the Recorder; the recording thread, GIL held. Example:
//
//   roles_.frames.expectFrame(std::move(pending));  // in a test, a fake keeps it
#pragma once

#include <optional>
#include <vector>

#include "capture/shadow.h"

namespace kintsugi::capture {

struct CallValues;
struct PendingFrame;
enum class CallKind : uint8_t;

// What a frame begins with: cells, and the arguments that it gathers. Played by Objects.
class FrameObjects {
 public:
  virtual Shadow tupleOf(PyObject* tuple, Shadows parts) = 0;
  virtual Shadow newCell(PyObject* cell, Shadow content) = 0;
  virtual std::optional<Shadow> closureCell(ShadowFrame& frame, int index, PyObject* cell) = 0;
  virtual std::optional<Shadow> elementOf(Shadow shadow, PyObject* sequence, Py_ssize_t index) = 0;

 protected:
  ~FrameObjects() = default;
};

// States of frames. Played by Snapshots.
class FrameStates {
 public:
  virtual bool isRunning(ir::RecipeId recipe) const = 0;
  virtual CallSite callSite(const Instr& instr, size_t popped, Shadows extra = {},
                            ir::ReturnAction action = ir::ReturnAction::kPush) = 0;
  virtual ir::StateId makeState(ShadowFrame& frame, int32_t pc, size_t popped, const Shadows& extra,
                                ir::ReturnAction action, ir::Operand replacement) = 0;

 protected:
  ~FrameStates() = default;
};

// Frames of Python functions that are about to be entered. Played by Callees.
class FrameCalls {
 public:
  virtual void expectFrame(PendingFrame pending) = 0;
  virtual PendingFrame methodFrame(PyObject* function, Shadow self, PyObject* object) = 0;
  virtual Shadow returned() = 0;

 protected:
  ~FrameCalls() = default;
};

// Closes a generator that the program has dropped; its frames are recorded. Played by Callees.
class GeneratorCloser {
 public:
  virtual void closeGenerator(Virtual& generator) = 0;

 protected:
  ~GeneratorCloser() = default;
};

// Executes the instruction that is being recorded, once. Played by Steps.
class InstructionRunner {
 public:
  virtual Flow execute(Activation& act, const Instr& instr) = 0;

 protected:
  ~InstructionRunner() = default;
};

// Calls that each run makes again (steps.h says what each function does). Played by Steps.
class CallSteps {
 public:
  virtual Flow callStep(CallValues& call, CallKind kind, const char* reason, Shadow& result) = 0;
  virtual Flow replaceCall(CallValues& call, pyapi::Ref<> result) = 0;
  virtual Shadow appendCall(CallValues& call, CallKind kind, const std::vector<ir::Operand>& operands,
                            ir::StateId snap, PyObject* result) = 0;
  virtual bool recordRaised(CallValues& call, CallKind kind, std::vector<ir::Operand> operands,
                            ir::StateId snap) = 0;
  virtual bool quietOperands(CallValues& call, std::vector<ir::Operand>& operands) = 0;

 protected:
  ~CallSteps() = default;
};

}  // namespace kintsugi::capture
