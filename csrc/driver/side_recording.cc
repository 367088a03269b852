// CompiledFunction: which exits are recorded, and the linking of side traces.
//
// Policy: the first exit at a guard is recorded; after n recordings at the same guard, 2^n - 1 exits there
// are let pass, so that a number that is always new costs little. A guard keeps a few side traces and a
// callable keeps `sideTraceLimit`; past that, the least recently used one is evicted. No exit is excluded
// from recording forever.
#include <algorithm>
#include <utility>

#include "capture/side_start.h"
#include "capture/sizes.h"
#include "diag/events.h"
#include "diag/log.h"
#include "driver/compiled_function.h"
#include "driver/const_texts.h"
#include "driver/fx_segments.h"
#include "driver/guard_filter.h"
#include "driver/interpret_all.h"
#include "driver/lifecycle_events.h"
#include "driver/recording.h"
#include "pyapi/frame.h"
#include "support/contain.h"
#include "support/fault.h"

namespace kintsugi::driver {

namespace log = diag::log;

namespace {

// Recordings at an exit that may fail before it is given up. More cost time where none can succeed; with
// fewer, an exit whose first recordings met something unusual stays slow.
constexpr uint32_t kMostFailures = 3;

bool isInSnapshot(const runtime::ExitContext& context, PyObject* code) {
  const recording::Recording& recording = context.trace->recording();
  const ir::Trace& trace = recording.document.trace;
  for (ir::StateId id = context.state; id != ir::kNone; id = trace.states[id].parent) {
    if (recording.consts[trace.states[id].code].get() == code) return true;
  }
  return false;
}

}  // namespace

// The number of calls since the last exit that ran to their end along traces.
uint64_t CompiledFunction::completeRuns() {
  const uint64_t before = std::exchange(hitsAtExit_, cache_.stats().hits);
  return hitsAtExit_ > before ? hitsAtExit_ - before - 1 : 0;
}

bool CompiledFunction::shouldRecord(runtime::CompiledTrace& trace, uint32_t guard) {
  if (stanceIsSet()) [[unlikely]] {
    if (stance().kind == StanceKind::kFailOnRecompile) return true;
    if (stance().kind == StanceKind::kEagerOnRecompile || stance().kind == StanceKind::kForceEager)
      return false;
  }
  runtime::ExitSite& site = trace.sides().at(guard);
  const uint64_t paid = completeRuns();
  addEvidence(Payoff::kExit);
  if (settings().sideTraceLimit == 0 || site.failures >= kMostFailures || site.backoff.passes() ||
      !sides_.allows(paid) || (countsCost() && !budget_.allows(diag::events::nowNs()))) {
    return false;
  }
  return !isRecording() && !interpretAll() && !pyapi::isTracing(PyThreadState_Get()) &&
         !cache_.isRecording() && torchapi::GlobalState::current().recordable();
}

// What was recorded up to now takes the write as an effect that runs no code. So the next call is recorded
// anew, once for each such write.
void CompiledFunction::noteEndingWrite(runtime::CompiledTrace& trace, ir::StateId state) {
  const ir::FrameState& frame = trace.trace().states[state];
  if (!endingPlaces_.add(trace.recording().consts[frame.code].get(), frame.pc)) return;
  const auto roots = cache_.traces();
  const bool root = std::ranges::any_of(roots, [&](const auto& one) { return one.get() == &trace; });
  for (const auto& one : roots) {
    if (!root || one.get() == &trace) one->dead = true;
  }
}

PyObject* CompiledFunction::run(runtime::ExitContext context, std::vector<runtime::FrameImage> images) {
  if (stanceIsSet() && stance().kind == StanceKind::kFailOnRecompile)
    return failAtExit(context, std::move(images));
  runtime::RecordingScope scope(cache_);
  if (!scope) return runtime::runFrames(std::move(images), false);
  const recording::Recording& parent = context.trace->recording();
  ++recordings_;
  sides_.spend();
  const uint64_t begun = diag::events::nowNs();
  const bool learned = succeeds([&] {
    faultPoint("side exit");
    noteVariations(*context.trace, context.failure);
    if (const auto name = capture::likelyOperator(parent.document.trace, context.guard)) {
      dynamicSources_.insert(capture::hashOfOperator(*name));
    }
  });
  if (!learned) return runtime::runFrames(std::move(images), false);
  capture::SideStart start{.parent = parent,
                           .guard = context.guard,
                           .state = context.state,
                           .seen = context.seen,
                           .seenMeta = context.seenMeta ? &*context.seenMeta : nullptr,
                           .values = context.values,
                           .sources = context.sources,
                           .recipes = context.recipes};
  PyObject* result = conclude(
      recordSide(recorderOptions(), start, std::move(images),
                 [&context] {
                   context.values.clear();
                   context.sources.clear();
                   context.recipes.clear();
                 }),
      [&](capture::CaptureResult& capture) {
        ++context.trace->sides().at(context.guard).failures;
        if (capture.failure->code == diag::Code::KTG0303 && closeLengths()) return;
        noteFailure(*capture.failure, isInSnapshot(context, capture.failedIn) ? nullptr : capture.failedIn);
      },
      [&](capture::CaptureResult& capture) {
        linkSide(context, std::move(capture.recording));
        return true;
      });
  const uint64_t end = diag::events::nowNs();
  budget_.recorded(end, end - begun);
  return result;
}

void CompiledFunction::linkSide(runtime::ExitContext& context, recording::Recording recording) {
  addBreaks(recording.breaks);
  const recording::Recording& parent = context.trace->recording();
  recording.start = context.guard;
  recording.argCount = parent.argCount;
  recording.kwNames = parent.kwNames.clone();
  if (recording.gradients.rest == 0) recording.gradients = parent.gradients;
  const auto failure = contain([&] {
    faultPoint("side");
    describeConstants(recording, function_.get());
    recording.start = runTracePasses(recording.document, recording.start, tracePasses(recording));
    if (options_.guardFilter && !filterGuards(recording, options_.guardFilter.get(), context.args)) {
      PyErr_WriteUnraisable(
          options_.guardFilter.get());  // the call has its result: it goes on without the trace
      return;
    }
    auto trace = std::make_shared<runtime::CompiledTrace>(std::move(recording));
    if (options_.native.enabled) attachNative(*trace, options_.native);
    if (options_.backend && !attachBackend(*trace, options_.backend.get(), nullptr, options_.name)) {
      PyErr_Clear();  // no memory for the descriptions of its segments
      return;
    }
    if (trace->trace().countOf(ir::Op::kAten) > 0)
      for (const auto& root : cache_.traces()) root->idle = false;
    logTrace(*trace, "side trace of instruction " + std::to_string(context.guard));
    emitSideTrace(*context.trace, context.guard, context.state, *trace);
    runtime::ExitSite& site = context.trace->sides().at(context.guard);
    site.backoff.failed();
    auto gone = context.trace->sides().link(context.guard, std::move(trace), kSidesPerGuard);
    trimSides(*context.trace);
  });
  if (failure) {
    noteFailure(diag::Diagnostic(diag::Code::KTG0000, {failure->text}), nullptr);
    ++context.trace->sides().at(context.guard).failures;
  }
}

// Keeps the number of side traces within the limit; `keep` has just got a new one.
void CompiledFunction::trimSides(const runtime::CompiledTrace& keep) {
  std::vector<std::shared_ptr<runtime::CompiledTrace>> gone;
  auto traces = cache_.traces();
  auto count = [&traces] {
    size_t total = 0;
    for (auto& trace : traces) total += trace->sides().count();
    return total;
  };
  while (count() > settings().sideTraceLimit) {
    runtime::CompiledTrace* owner = nullptr;
    uint64_t oldest = ~uint64_t{0};
    for (auto& trace : traces) runtime::findOldestLeaf(*trace, keep, owner, oldest);
    if (owner == nullptr) break;
    gone.push_back(owner->sides().unlink(oldest));
  }
}

}  // namespace kintsugi::driver
