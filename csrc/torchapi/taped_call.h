// Operators that are differentiated by autograd in a graph of their own (passes/gradient_graph.h): run once
// with leaves in the place of their arguments, and backwards when the gradients of their results are there.
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
  // `follows`: the values that autograd follows, arguments of the call; `leaves`: where what stands for them
  // is put.
  TapedCall(std::unique_ptr<AtenCall> call, std::vector<uint32_t> follows, std::vector<uint32_t> leaves)
      : call_(std::move(call)), follows_(std::move(follows)), leaves_(std::move(leaves)) {}

  AtenCall::Status run(Value* values, CallState& state) const;

 private:
  std::unique_ptr<AtenCall> call_;
  std::vector<uint32_t> follows_;
  std::vector<uint32_t> leaves_;
};

// The gradients of `leaves` (zeros where none arrives) into `out`, owned by the caller. False: an exception
// of C++, kept in `state` if there is one.
bool runTape(std::span<const Value> results, std::span<const Value> leaves, std::span<const Value> gradients,
             std::span<Value> out);
// Not all tapes of a plan have to be run, on this thread, while one lives: `tapes`, by number; empty: all.
class RequestedTapes {
 public:
  explicit RequestedTapes(const std::vector<bool>& tapes);
  ~RequestedTapes();
  RequestedTapes(const RequestedTapes&) = delete;
  static bool isRequested(uint32_t number);
};
// Zeros.
void skipTape(std::span<const Value> leaves, std::span<Value> out);
// What the last tape on this thread that failed raised, once; null: none has.
std::exception_ptr takeTapeError();

// A leaf of a new graph on the same memory, whose version counter it shares. One reference is given away.
void* newLeaf(void* impl);

}  // namespace kintsugi::torchapi
