// The torch call under way, and the numbers of the trace that it is given.
//
// While torch runs, its dispatcher calls are logged (torchapi::OpRecorder) and frames are not recorded. A
// call is *tainted* if it has run Python code that is not torch's own: then the log does not explain its
// result, and the call becomes a step. Code of the program that an operator runs (a kernel, a mode, a hook)
// is part of that operator, so it taints nothing; but it may change anything in another run, so everything is
// read again behind the call. A number of the trace is passed as a symbolic number. A binding that can't take
// one asks for the number itself, and the trace is pinned to it (torch_steps_symbolic.cc).
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
#include "support/check.h"

namespace kintsugi::capture {

class TorchCalls {
 public:
  void begin() {
    tainted_ = programRan_ = false;
    ++depth_;
  }
  void end() {
    KINTSUGI_CHECK(depth_ > 0, "a call of torch ends that has not begun");
    --depth_;
  }
  bool isInside() const { return depth_ > 0; }

  bool isTainted() const { return tainted_; }
  void setTainted(bool tainted) { tainted_ = tainted; }
  // True if an operator has run Python code of the program.
  bool hasProgramRun() const { return programRan_; }
  void noteProgramRan() { programRan_ = true; }
  // True if numbers in the result depend only on arguments that are pinned.
  bool givesConstantNumbers() const { return constantNumbers_; }
  void setConstantNumbers(bool constant) { constantNumbers_ = constant; }

  // A symbolic number among the arguments of the call, with the real one.
  void addNumber(ir::ValueId value, PyObject* number) {
    KINTSUGI_CHECK(value != ir::kNone && number != nullptr, "a number of the run without a value");
    numbers_[value] = pyapi::newRef(number);
  }
  PyObject* numberOf(ir::ValueId value) const {  // null: it is not among them
    const auto found = numbers_.find(value);
    return found == numbers_.end() ? nullptr : found->second.get();
  }
  void clearNumbers() { numbers_.clear(); }

  // Numbers that are pinned by a guard; they are constants from then on. False if the number was pinned
  // before.
  bool pinNumber(ir::ValueId value) { return pinned_.insert(value).second; }
  bool isPinned(ir::ValueId value) const { return pinned_.contains(value); }

 private:
  int depth_ = 0;
  bool tainted_ = false;
  bool programRan_ = false;
  bool constantNumbers_ = false;
  std::unordered_map<ir::ValueId, pyapi::Ref<>> numbers_;
  std::unordered_set<ir::ValueId> pinned_;
};

}  // namespace kintsugi::capture
