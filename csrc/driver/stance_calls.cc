// CompiledFunction: what a stance (driver/stance.h) changes in a call.
#include "capture/breaks.h"
#include "driver/compiled_function.h"
#include "runtime/guard_explain.h"
#include "runtime/run_events.h"

namespace kintsugi::driver {

// The same callable with the stance's backend instead of its own: traces of its own, kept until reset().
std::shared_ptr<CompiledFunction> CompiledFunction::withBackendOfStance() {
  const Stance& wanted = stance();
  for (const StanceVariant& known : stanceVariants_) {
    if (known.native == wanted.native && known.backend.get() == wanted.backend.get()) return known.function;
  }
  FunctionOptions options;
  options.fullgraph = options_.fullgraph;
  options.audit = options_.audit;
  options.dynamic = options_.dynamic;
  options.hasRecompileLimit = options_.hasRecompileLimit;
  options.recompileLimit = options_.recompileLimit;
  options.traceLengthLimit = options_.traceLengthLimit;
  options.guardFilter = options_.guardFilter.clone();
  options.name = options_.name;
  options.backend = wanted.backend.clone();
  options.native.enabled = wanted.native;
  auto made = std::make_shared<CompiledFunction>(fn_.get(), std::move(options));
  made->isStanceVariant_ = true;
  stanceVariants_.push_back({wanted.native, wanted.backend.clone(), made});
  return made;
}

// No trace fits. The result of the call, or null with an exception pending; nothing: it is to be recorded.
std::optional<PyObject*> CompiledFunction::insteadOfRecording(const pyapi::Arguments& args) {
  switch (stance().kind) {
    case StanceKind::kDefault:
      return std::nullopt;
    case StanceKind::kForceEager:
      return callEager(args);
    case StanceKind::kEagerOnRecompile:
      return eagerBecause("the stance is eager_on_recompile", args);
    case StanceKind::kFailOnRecompile: {
      std::string reasons;
      for (const auto& trace : cache_.traces()) {
        const runtime::GuardFailure failure = runtime::explainMiss(*trace, args);
        reasons += "\n- expected " + failure.expected + ", saw " + failure.seen;
      }
      return failOnRecompile(entryPlace(), reasons);
    }
    case StanceKind::kEagerThenCompile:
      if (!cache_.traces().empty()) return std::nullopt;
      if (!seenFirst_.taken()) {
        seenFirst_.take(args);
        return eagerBecause("the stance is eager_then_compile", args);
      }
      seenFirst_.addDifferences(args, dynamicSources_, dynamicSizes_);
      return std::nullopt;
  }
  return std::nullopt;
}

// Sets the error, and returns null.
PyObject* CompiledFunction::failOnRecompile(const diag::SourceLoc& place, const std::string& reasons) {
  PyErr_Format(
      PyExc_RuntimeError,
      "kintsugi: a call would be recorded, and the stance is 'fail_on_recompile'. filename: '%s', function "
      "name: '%s', line number: %d%s",
      place.file.c_str(), place.function.c_str(), place.line, reasons.c_str());
  return nullptr;
}

// A guard has distinguished two calls: under skip_guard_eval_unsafe it goes on being checked.
void CompiledFunction::noteDistinguishing(const runtime::CompiledTrace& trace,
                                          const runtime::GuardFailure& failure) {
  if (failure.guard == ir::kNone) return;
  const guard::Guard& g = trace.recording().document.guards.guards[failure.guard];
  const bool fresh = distinguishing_.guards.insert(runtime::guardHash(trace.recording(), g)).second;
  distinguishing_.version += fresh ? 1 : 0;
}

// The frames of a side exit, where an exit may not be recorded: they raise where they are.
PyObject* CompiledFunction::failAtExit(const runtime::ExitContext& context,
                                       std::vector<runtime::FrameImage> images) {
  const auto frames = runtime::framesOf(*context.trace, context.state);
  const diag::SourceLoc place = frames.empty() ? entryPlace() : frames.front();
  const std::string what = context.failure.expected.empty()
                               ? std::string("\n- a value was another one than in the trace")
                               : "\n- expected " + context.failure.expected + ", saw " + context.failure.seen;
  failOnRecompile(place, what);
  return runtime::runFrames(std::move(images), true);
}

}  // namespace kintsugi::driver
