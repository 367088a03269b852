#include "runtime/compiled_trace.h"

#include "runtime/run_events.h"

namespace kintsugi::runtime {

namespace {
std::atomic<uint32_t> tracesMade{0};
}

CompiledTrace::CompiledTrace(Recording recording)
    : recording_(std::move(recording)),
      guards_(recording_),
      replay_(recording_),
      number_(tracesMade.fetch_add(1, std::memory_order_relaxed) + 1) {}

uint32_t CompiledTrace::entryText() {
  if (entryText_ == 0) entryText_ = entryOf(*this);
  return entryText_;
}

}  // namespace kintsugi::runtime
