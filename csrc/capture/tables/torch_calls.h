// The torch call under way, and the numbers of the trace that it is given.
//
// While torch runs, its dispatcher calls are logged (torchapi::OpRecorder) and frames are not recorded. A
// call is *tainted* when it has run Python code that is not torch's own: the log does not explain its result
// then, and it becomes a step. A number of the trace stands among the arguments as a symbolic number; a
// binding that can't take one asks for the number itself, and the trace is pinned to it (symbolic.cc).
//
// Owned by the Recorder; the recording thread, GIL held. Calls nest. Example:
//
//   calls.begin(); ops.resume(); ... ; ops.pause(); calls.end();
//   if (!calls.isTainted()) ops.drain(trace, snap);
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "ir/trace.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

class TorchCalls {
 public:
  void begin() {
    tainted_ = false;
    ++depth_;
  }
  void end() { --depth_; }
  bool isInside() const { return depth_ > 0; }

  bool isTainted() const { return tainted_; }
  void setTainted(bool tainted) { tainted_ = tainted; }
  // Numbers in the result follow from arguments that are pinned.
  bool givesConstantNumbers() const { return constantNumbers_; }
  void setConstantNumbers(bool constant) { constantNumbers_ = constant; }

  // Symbolic numbers among the arguments of the call, with the real ones.
  void addNumber(ir::ValueId value, PyObject* number) { numbers_[value] = pyapi::newRef(number); }
  PyObject* numberOf(ir::ValueId value) const {  // null: it is not among them
    const auto found = numbers_.find(value);
    return found == numbers_.end() ? nullptr : found->second.get();
  }
  void clearNumbers() { numbers_.clear(); }

  // Numbers that a guard pins: constants from there on. False: it was one already.
  bool pinNumber(ir::ValueId value) { return pinned_.insert(value).second; }
  bool isPinned(ir::ValueId value) const { return pinned_.contains(value); }

 private:
  int depth_ = 0;
  bool tainted_ = false;
  bool constantNumbers_ = false;
  std::unordered_map<ir::ValueId, pyapi::Ref<>> numbers_;
  std::unordered_set<ir::ValueId> pinned_;
};

}  // namespace kintsugi::capture
