// One `aten` instruction in executable form: the operator, its constant arguments (boxed once), and the
// positions of the other arguments.
//
// Ownership: an AtenCall owns its boxed constants and borrows nothing. A CallState is the scratch of one
// running trace. Threads/GIL: an AtenCall is constant and may run on many threads, each with its own
// CallState; run() needs no GIL, and must not hold it where other threads may need it to finish the kernel.
// deliver...() need the GIL. Invalidation: none.
#pragma once

#include <memory>
#include <string>

#include "ir/liveness.h"
#include "ir/trace.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

class CallState {
 public:
  CallState();
  ~CallState();

  // While open, C++ warnings of this thread are kept for deliverWarnings().
  void openWarnings();
  void closeWarnings();
  bool hasWarnings() const;

  // Turns the C++ exception of the failed call into a Python one, as torch's bindings do.
  void deliverError();
  // Has Python code raised, which the operator has called? Running that a second time would be seen.
  bool isErrorOfPython() const;
  // Drops the error. The operation will be run again elsewhere, and raises again there.
  void dropError();
  // Issues the kept warnings as Python warnings. False: one of them became an exception, which is pending.
  bool deliverWarnings();

 private:
  friend class AtenCall;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class AtenCall {
 public:
  enum class Status : uint8_t {
    kOk,
    kRaised,   // the exception is in the CallState
    kChanged,  // results of another number or kind than recorded; nothing was stored
  };

  // Null with a reason when the operator is unknown or the operands do not fit its schema.
  static std::unique_ptr<AtenCall> make(const ir::Trace& trace, uint32_t instruction,
                                        const ir::Liveness& liveness, std::string& reason);
  ~AtenCall();

  Status run(Value* values, CallState& state) const;

 private:
  struct Impl;
  explicit AtenCall(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::torchapi
