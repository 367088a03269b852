// ExitContext: what a recorder needs to know of a side exit to record a side trace from it. It is collected
// before the run's values are dropped.
//
// Rebuilt frames hold plain Python objects. The recorder also has to know which value, source or recipe of
// the snapshot each object is, and what the failed guard saw.
//
// Ownership: owns references to all objects. Thread: the one whose run exits; GIL held. Invalidation: none.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/trace.h"
#include "pyapi/arguments.h"
#include "pyapi/ref.h"
#include "runtime/frame_rebuild.h"
#include "runtime/guard_program.h"
#include "runtime/materialize.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::runtime {

class CompiledTrace;

using ObjectTable = std::unordered_map<uint32_t, pyapi::Ref<>>;

struct ExitContext {
  std::shared_ptr<CompiledTrace> trace;
  pyapi::Arguments args;  // of the call, which holds them
  uint32_t guard = 0;     // index of the instruction that failed
  ir::StateId state = ir::kNone;
  ir::Operand seen;                        // guard.value: the number that was there
  std::optional<ir::TensorDesc> seenMeta;  // guard.meta
  GuardFailure failure;                    // guard.block
  ObjectTable values;
  ObjectTable sources;
  ObjectTable recipes;
};

// Decides about exits. The driver's part; called with the GIL, must not throw.
class ExitHandler {
 public:
  virtual ~ExitHandler() = default;
  // An exit at a guard that no side trace covers. True: collect an ExitContext and call run().
  virtual bool shouldRecord(CompiledTrace& trace, uint32_t guard) = 0;
  // The run has left at `state` in front of a write that ends an object, so that code of the program runs.
  virtual void noteEndingWrite(CompiledTrace& trace, ir::StateId state) = 0;
  // Runs the frames to their end (recording or not), like runFrames(): a new reference, or null with an
  // exception pending.
  virtual PyObject* run(ExitContext context, std::vector<FrameImage> images) = 0;
};

// What the guard `ins` saw, where that decides which side trace is taken.
void describeExit(const RunView& run, const ir::Instruction& ins, ExitContext& context);

// Fills the tables with everything that the snapshot names, parts of recipes included. `make` has built the
// frames. False: an object could not be made (a Python exception is pending).
bool collectObjects(const RunView& run, Materializer& make, ir::StateId state, ExitContext& context);

}  // namespace kintsugi::runtime
