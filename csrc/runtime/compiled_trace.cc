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

int CompiledTrace::traverse(visitproc visit, void* arg) const {
  for (const pyapi::Ref<>& constant : recording_.consts) Py_VISIT(constant.get());
  Py_VISIT(recording_.kwNames.get());
  int stop = guards_.traverse(visit, arg);
  sides_.each([&](uint32_t, const SideLink& link) {
    if (stop == 0) stop = link.trace->traverse(visit, arg);
  });
  return stop;
}

}  // namespace kintsugi::runtime
