// The global state that decides what an ATen call does: grad mode, inference mode, autocast (per device type:
// enabled, dtype; cache), default dtype, deterministic algorithms, the dispatch keys included and excluded in
// TLS, active dispatch and function modes, functorch depth, warn-always, and whether functions of torch's
// have been replaced, packed for one compare.
//
//   if (!recorded.isCurrent()) ...      a trace that was recorded under torch.no_grad() does not fit
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
  // True if the two differ in the grad mode at most.
  bool equalsExceptGradMode(GlobalState other) const;
  // True if a recording can start. False while a dispatch mode, a function mode or a functorch transform is
  // active, autograd detects anomalies, or operators of torch.Tensor are replaced.
  bool recordable() const;
  std::string describe() const;
  // For a state that comes from another process: the same state as this process would have it. Counts of
  // events in a process (registrations of classes with ABCs) are taken from here. Nothing: functions of torch
  // are replaced, there or here.
  std::optional<GlobalState> inThisProcess() const;
};

// The state after a call, as a recording saw it.
struct StateAfterCall {
  ir::ValueId call;  // its result
  bool unchanged;    // the state was that of the trace's entry, except for the grad mode
  bool gradMode;
};

// True if code of ours may run in place of operators in this thread. False if a dispatch mode, a transform or
// a tracer wants to see each operator, or if autocast changes them.
bool mayUseOwnKernels();
// True if a function mode other than that of torch.set_default_device() is active. Its Python code runs in
// place of each call of torch.
bool hasFunctionModes();
// True if a function mode or a dispatch mode in Python is active. It has to see the program's calls, and no
// others.
bool hasModes();

}  // namespace kintsugi::torchapi
