// Events of a running trace: which place of the program a step or an exit belongs to.
//
// Only called while the event stream is on. GIL. No ownership; what is looked up once is kept by number of
// the trace and instruction.
#pragma once

#include "diag/events.h"
#include "ir/trace.h"
#include "torchapi/profiler_range.h"

namespace kintsugi::runtime {

class CompiledTrace;

// The recorded frames at a state, outermost first.
std::vector<diag::SourceLoc> framesOf(const CompiledTrace& trace, ir::StateId state);
// The same as a stack text of the stream.
diag::events::TextId stackOf(const CompiledTrace& trace, ir::StateId state);

// The place of the trace's entry.
diag::events::TextId entryOf(const CompiledTrace& trace);

// A call or an effect of the trace, which began at `startNs` and is over now.
void emitStep(const CompiledTrace& trace, uint32_t instruction, std::uint64_t startNs);

// Is the event stream or torch's profiler on?
inline bool isObserved() { return diag::events::on() || torchapi::profilerActive(); }

// What torch's profiler calls a step, and the trace itself: `kintsugi opaque crc32 (f.py:3)`.
std::string stepTitle(const CompiledTrace& trace, uint32_t instruction);
std::string entryTitle(const CompiledTrace& trace);

// Emits an event that lasts for the life of this object, if the stream is on when it is made.
class ScopedEvent {
 public:
  ScopedEvent() = default;
  ScopedEvent(const ScopedEvent&) = delete;
  ~ScopedEvent();
  void begin(diag::events::Event event);

 private:
  diag::events::Event event_;
  bool active_ = false;
};

}  // namespace kintsugi::runtime
