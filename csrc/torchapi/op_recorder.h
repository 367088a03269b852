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
#include "torchapi/call_log.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

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

class OpRecorder final : public CallLog, public TensorIds {
 public:
  OpRecorder();
  ~OpRecorder();

  // The log: see call_log.h. It is on while a mode key is set for this thread.
  void resume() override;
  void pause() override;
  bool hasEffects() const override;
  GivenBack givenBack();
  DrainResult drain(ir::Trace& trace, ir::StateId snap) override;
  void discard() override;
  static bool inOperator();  // true if this thread is in a logged call (such as a kernel in Python)

  // The identity of tensors.
  std::optional<ir::ValueId> valueOf(PyObject* tensor) const override;
  void bind(PyObject* tensor, ir::ValueId value, MetaLevel level);
  // The same for a value of a trace that is continued.
  void restore(PyObject* tensor, ir::ValueId value);
  MetaLevel level(ir::ValueId value) const override;
  // Behind code that may change anything: the metadata of all tensors has to be looked at again.
  void expireLevels();
  // Behind code that only this call runs: the same for tensors whose metadata it has changed.
  void expireChanged();
  // How much of the metadata was known before; kUnknown: nothing, or the level is as it was.
  MetaLevel expiredLevel(ir::ValueId value) const;
  void setLevel(ir::ValueId value, MetaLevel level);
  // Is it a result that is the argument itself in runs with other sizes or strides?
  bool isMaybeArgument(ir::ValueId value) const;
  // The operator that made the tensor, if the tensor's metadata is only likely to be the same in each run;
  // else null.
  const std::string* likelyFrom(ir::ValueId value) const;
  void forgetTensors();  // drops all references to tensors: for a recording that has ended
  void forget(ir::ValueId value) override;

  // The index of the metadata in the trace; added if it is new.
  ir::MetaId internMeta(ir::Trace& trace, const ir::TensorDesc& info);
  std::vector<MetaLevel> takeLevels();  // by ValueId: the level at the value's definition
  // For a trace that is continued. Code that may change anything has run since the values before `known`.
  void adopt(const ir::Trace& trace, const std::vector<MetaLevel>& levels, ir::ValueId known);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::torchapi
