// The log of the operators that torch's code calls, as the recorder sees it, and which tensors the trace
// knows.
//
// OpRecorder (op_recorder.h) is both. The interfaces are here so that a unit test can put a log of its own in
// its place, without a dispatcher.
//
// Ownership: as OpRecorder. Thread: the one that records; GIL held. Example:
//
//   log.resume(); ... torch's code runs ...; log.pause();
//   const DrainResult drained = log.drain(trace, snap);  // its operators are the trace's now
#pragma once

#include <optional>
#include <vector>

#include "ir/trace.h"
#include "pyapi/ref.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

// The result of draining the calls of an instruction.
struct DrainResult {
  enum Status : uint8_t {
    kOk,
    kUnknownTensor,  // a call read a tensor that the trace does not know; nothing was appended
    kUnsupported,    // an argument that the IR can't express (a generator, a script object ...): nothing was
                     // appended
  };
  struct ScalarOut {  // a call returned a number (item, is_nonzero, equal ...)
    ir::ValueId value;
    ir::TypeKind kind;
    int64_t i;
    double f;
  };
  Status status = kOk;
  size_t count = 0;      // instructions appended
  bool dynamic = false;  // a tensor among their results has metadata that is known only at run time
  bool exits = false;    // how many results there are depends on sizes: a replay may leave the trace there
  bool mutated = false;  // one of them writes to a tensor or draws random numbers
  const char* detail = nullptr;  // the operator's name, for messages about refusals
  std::vector<ScalarOut> scalars;
};

class CallLog {
 public:
  // Switches the log on for this thread until the matching pause(). Nests.
  virtual void resume() = 0;
  virtual void pause() = 0;
  // True if an undrained call may have changed something: memory, a generator, or anything, if the operator
  // is a library's.
  virtual bool hasEffects() const = 0;
  // Appends the logged calls to `trace` as `aten` instructions with snapshot `snap` and binds their outputs.
  virtual DrainResult drain(ir::Trace& trace, ir::StateId snap) = 0;
  virtual void discard() = 0;                  // forgets the logged calls
  virtual void forget(ir::ValueId value) = 0;  // the instruction that made it was removed

 protected:
  ~CallLog() = default;
};

// The identity of tensors. `level`: how much of a tensor's metadata follows from guards.
class TensorIds {
 public:
  virtual std::optional<ir::ValueId> valueOf(PyObject* tensor) const = 0;
  virtual MetaLevel level(ir::ValueId value) const = 0;

 protected:
  ~TensorIds() = default;
};

}  // namespace kintsugi::torchapi
