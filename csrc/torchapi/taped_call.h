// Operators that autograd differentiates in a graph of their own (passes/gradient_graph.h). They run once
// with leaves in place of their arguments, and the graph is run backwards when the gradients of their results
// are known.
//
// Ownership: a TapedCall owns its call; what a run makes belongs to the values. The graph of a run lives as
// long as its results do. Threads: constant; runs on any, without the GIL, which must not be held.
// Invalidation: none.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "torchapi/aten_call.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

class TapedCall {
 public:
  // `follows`: the arguments that autograd follows. `leaves`: the slots for the leaves that take their
  // places.
  TapedCall(std::unique_ptr<AtenCall> call, std::vector<uint32_t> follows, std::vector<uint32_t> leaves)
      : call_(std::move(call)), follows_(std::move(follows)), leaves_(std::move(leaves)) {}

  AtenCall::Status run(Value* values, CallState& state) const;

 private:
  std::unique_ptr<AtenCall> call_;
  std::vector<uint32_t> follows_;
  std::vector<uint32_t> leaves_;
};

// Writes the gradients of `leaves` (zeros where none arrives) into `out`; the caller owns them. False: a C++
// exception, which takeTapeError() returns.
bool runTape(std::span<const Value> results, std::span<const Value> leaves, std::span<const Value> gradients,
             std::span<Value> out);
// During its lifetime, only these tapes of a plan are run on this thread. `tapes`, by number; empty: all.
class RequestedTapes {
 public:
  explicit RequestedTapes(const std::vector<bool>& tapes);
  ~RequestedTapes();
  RequestedTapes(const RequestedTapes&) = delete;
  static bool isRequested(uint32_t number);
};
// Writes zeros, in place of a tape's gradients.
void skipTape(std::span<const Value> leaves, std::span<Value> out);
// Returns the exception of the last tape on this thread that failed, once; null: none has failed.
std::exception_ptr takeTapeError();

// A leaf of a new graph on the same memory, with the same version counter. Returns one reference.
void* newLeaf(void* impl);

}  // namespace kintsugi::torchapi
