// The global state that a trace relies on (grad mode, default dtype ...): at its entry, after each step that
// may have changed it, and after each call.
//
// Plain values; owned by the Recorder. The recording thread, GIL held. Example:
//
//   guard.number = states.add(torchapi::GlobalState::current());  // after a step
#pragma once

#include <utility>
#include <vector>

#include "ir/trace.h"
#include "support/check.h"
#include "torchapi/global_state.h"

namespace kintsugi::capture {

class GlobalStates {
 public:
  void begin(torchapi::GlobalState entry) { entry_ = std::move(entry); }
  // A side trace takes over the states of its parent. The first one is the state at entry.
  void adopt(const std::vector<torchapi::GlobalState>& states,
             const std::vector<torchapi::StateAfterCall>& afterCalls) {
    KINTSUGI_CHECK(!states.empty(), "a parent trace without the state at its entry");
    entry_ = states.front();
    later_.assign(states.begin() + 1, states.end());
    afterCalls_ = afterCalls;
  }
  // Returns the number by which a guard names the state.
  int64_t add(torchapi::GlobalState state) {
    later_.push_back(std::move(state));
    return static_cast<int64_t>(later_.size());
  }
  // Notes the state after the call whose result is `value`.
  void noteCall(ir::ValueId value);

  std::vector<torchapi::GlobalState> takeAll() {
    later_.insert(later_.begin(), entry_);
    return std::move(later_);
  }
  std::vector<torchapi::StateAfterCall> takeAfterCalls() { return std::move(afterCalls_); }

 private:
  torchapi::GlobalState entry_;
  std::vector<torchapi::GlobalState> later_;
  std::vector<torchapi::StateAfterCall> afterCalls_;  // calls, in order
};

}  // namespace kintsugi::capture
