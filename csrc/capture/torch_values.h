// Values on their way into torch's calls and out of them.
//
// What the dispatcher's log can show of a call are tensors, numbers, and sequences of these. Other arguments
// make the call a step. A result has to be one of the log's, or made of such; otherwise it came about in a
// way that the log does not show, and the call can't be replayed by its operators.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   if (!values.accepts(shadow, argument)) return opaqueModel(ctx, result);
#pragma once

#include <optional>

#include "capture/frame_roles.h"
#include "capture/roles.h"
#include "capture/tables/torch_calls.h"
#include "capture/tables/virtual_table.h"
#include "torchapi/call_log.h"

namespace kintsugi::capture {

class TorchValues final {
 public:
  TorchValues(KnownObjects& known, FrameObjects& objects, const torchapi::TensorIds& tensors,
              const TorchCalls& torchCalls, VirtualTable& virtuals)
      : known_(known), objects_(objects), tensors_(tensors), torchCalls_(torchCalls), virtuals_(virtuals) {}

  // True if the object may be an argument of a torch function that is recorded through the dispatcher.
  bool accepts(Shadow shadow, PyObject* object) const;
  // True if guarded metadata fixes the sizes of the tensor. For a wrapper, the tensor inside counts.
  bool hasStaticMeta(Shadow shadow, PyObject* tensor) const;
  // A number that a torch call has read from a tensor must be the result of the call. If it decided something
  // inside the call, the log does not show it.
  static bool explainsNumbers(PyObject* result, const torchapi::DrainResult& drained);
  // The shadow of a logged call's result; nothing if the log does not explain the result.
  std::optional<Shadow> shadowOf(PyObject* result, const torchapi::DrainResult& drained);

 private:
  std::optional<Shadow> shadowOfTensor(PyObject* tensor);
  std::optional<Shadow> shadowOfNumber(PyObject* number, const torchapi::DrainResult& drained) const;

  KnownObjects& known_;
  FrameObjects& objects_;
  const torchapi::TensorIds& tensors_;
  const TorchCalls& torchCalls_;
  VirtualTable& virtuals_;
};

}  // namespace kintsugi::capture
