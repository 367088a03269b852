// Sees every ATen call that the Python bindings make, before decomposition and autograd, and writes it into a
// trace.
//
// A boxed fallback on a mode key logs operator, inputs and outputs while a recorder is live on this thread;
// the client (capture::Recorder) drains the log at the end of the bytecode instruction that made the calls.
// Tensors are known by TensorImpl; a weak reference is held for each, so that no address is used twice during
// a recording.
//
// Ownership: owned by one capture::Recorder. Thread: the one that records; GIL held. Nothing outlives the
// recording but what was written into the trace.
#pragma once

#include <memory>
#include <optional>
#include <string>
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

// What has to be guarded before logged calls are drained, since operators have given back their arguments as
// they are, or may do so in another run. See given_back.h.
struct GivenBack {
  struct Tensor {
    ir::ValueId value;
    MetaLevel level;  // how much of its metadata decides
    ir::TensorDesc desc;
  };
  std::vector<Tensor> tensors;
  bool hasUnknown = false;  // one is known to the calls alone, or numbers decide
};

class OpRecorder {
 public:
  OpRecorder();
  ~OpRecorder();

  // Switches the log on for this thread (TLS mode key) until the matching pause(). Nests.
  void resume();
  void pause();

  // True if an undrained call may have changed something: memory, a generator, or anything, if the operator
  // is a library's.
  bool hasEffects() const;
  GivenBack givenBack();
  // Appends the logged calls to `trace` as `aten` instructions with snapshot `snap` and binds their outputs.
  DrainResult drain(ir::Trace& trace, ir::StateId snap);
  void discard();            // forgets the logged calls
  static bool inOperator();  // true if this thread is in a logged call (such as a kernel in Python)

  // The identity of tensors. `level`: how much of a tensor's metadata follows from guards.
  std::optional<ir::ValueId> valueOf(PyObject* tensor) const;
  void bind(PyObject* tensor, ir::ValueId value, MetaLevel level);
  MetaLevel level(ir::ValueId value) const;
  void setLevel(ir::ValueId value, MetaLevel level);
  // Is it a result that is the argument itself in runs with other sizes or strides?
  bool isMaybeArgument(ir::ValueId value) const;
  // The operator that made the tensor, if the tensor's metadata is only likely to be the same in each run;
  // else null.
  const std::string* likelyFrom(ir::ValueId value) const;
  void forgetTensors();            // drops all references to tensors: for a recording that has ended
  void forget(ir::ValueId value);  // the instruction that made it was removed

  // The index of the metadata in the trace; added if it is new.
  ir::MetaId internMeta(ir::Trace& trace, const ir::TensorDesc& info);
  std::vector<MetaLevel> takeLevels();  // by ValueId: the level at the value's definition
  // For a trace that is continued; called first.
  void adopt(const ir::Trace& trace, const std::vector<MetaLevel>& levels);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::torchapi
