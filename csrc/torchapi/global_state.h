// The global state that decides what an ATen call does: grad mode, inference mode, autocast (per device type:
// enabled, dtype; cache), default dtype, deterministic algorithms, the dispatch keys included and excluded in
// TLS, active dispatch and function modes, functorch depth, warn-always, and whether functions of torch's
// have been replaced, packed for one compare.
//
// Plain data; thread: the values are those of the calling thread. GIL held.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ir/types.h"

namespace kintsugi::torchapi {

struct GlobalState {
  std::array<uint64_t, 8> words{};
  static GlobalState current();
  bool operator==(const GlobalState&) const = default;
  bool isCurrent() const { return current() == *this; }
  // The two differ in nothing but the grad mode, if in that.
  bool isLike(GlobalState other) const;
  // Can a recording start at all? No while a dispatch mode, a function mode or a functorch transform is
  // active, autograd detects anomalies, or somebody has replaced operators of torch.Tensor.
  bool recordable() const;
  std::string describe() const;
  // The same state as it would be found here, where it comes from another process: what counts events of the
  // process (classes that were registered with abstract ones) is taken from here. Nothing: functions of
  // torch's have been replaced, there or here.
  std::optional<GlobalState> inThisProcess() const;
};

// What a recording has seen of the state after a call.
struct StateBehind {
  ir::ValueId call;  // its result
  bool like;         // but for the grad mode it was that of the trace's entry
  bool gradMode;
};

// May code of ours stand for operators in this thread now? Not while somebody wants to see each of them (a
// dispatch mode, a transform, a tracer), or autocast changes them.
bool mayUseOwnKernels();
// Is a function mode active, other than that of torch.set_default_device()? Its Python code runs in place of
// each call of torch's.
bool hasFunctionModes();
// Is a function mode or a dispatch mode of Python code active? It is to see the program's calls, and no
// others.
bool hasModes();

}  // namespace kintsugi::torchapi
