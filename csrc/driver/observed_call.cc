// CompiledFunction: calls while the event stream is on. The same as without it, and timed.
#include "diag/events.h"
#include "diag/log.h"
#include "driver/compiled_function.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/text.h"
#include "runtime/run_events.h"

namespace kintsugi::driver {

namespace events = diag::events;

diag::SourceLoc CompiledFunction::entryPlace() const {
  if (options_.place.known()) return options_.place;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function_.get()));
  return {pyapi::utf8(pyapi::fileOf(code)), pyapi::firstLineOf(code), pyapi::utf8(pyapi::nameOf(code))};
}

PyObject* CompiledFunction::callObserved(const pyapi::Arguments& args) {
  const uint64_t start = events::nowNs();
  {
    runtime::SlotBuffer slots;
    std::shared_ptr<runtime::CompiledTrace> trace;
    if (!succeeds([&] { trace = cache_.lookup(args, slots, checkedGuards()); })) return callEager(args);
    if (trace) {
      if (isIdle(*trace)) return eagerBecause(kNothingToCompile, args);
      if (pyapi::recursionLeft(PyThreadState_Get()) < trace->recording().recursion)
        return eagerBecause("the recursion limit is near", args);
      const uint64_t guarded = events::nowNs();
      torchapi::ProfilerRange range;
      if (torchapi::profilerActive()) range.begin("kintsugi call " + runtime::entryTitle(*trace));
      PyObject* result = runTrace(*trace, args, slots);
      if (events::on())
        events::emit({.startNs = start,
                      .durationNs = events::nowNs() - start,
                      .extra = guarded - start,
                      .trace = trace->number(),
                      .stack = trace->entryText(),
                      .kind = events::Kind::kCall});
      return result;
    }
  }
  return recordObserved(args);
}

PyObject* CompiledFunction::recordObserved(const pyapi::Arguments& args) {
  const size_t tracesBefore = cache_.stats().recompiles + (cache_.traces().empty() ? 0 : 1);
  recorded_ = false;
  events::Event event{.startNs = events::nowNs(),
                      .stack = events::intern(events::stackText({entryPlace()})),
                      .kind = events::Kind::kRecord};
  torchapi::ProfilerRange range;
  if (torchapi::profilerActive()) range.begin("kintsugi record " + entryPlace().format());
  PyObject* result = recordCall(args);
  if (!events::on()) return result;
  if (!std::exchange(recorded_, false)) return result;  // ran in eager mode, which has an event of its own
  const auto traces = cache_.traces();
  const bool made = cache_.stats().recompiles + (traces.empty() ? 0 : 1) > tracesBefore;
  event.durationNs = events::nowNs() - event.startNs;
  event.name = events::intern(made ? "recorded" : "failed");
  uint32_t newest = 0;
  for (const auto& trace : traces) {
    if (trace->number() > newest) {
      newest = trace->number();
      event.extra = trace->trace().code.size();
    }
  }
  event.trace = made ? newest : 0;
  if (!made) event.extra = 0;
  events::emit(event);
  return result;
}

PyObject* CompiledFunction::eagerBecause(const char* why, const pyapi::Arguments& args) {
  runtime::ScopedEvent event;
  if (events::on()) {
    event.begin({.stack = events::intern(events::stackText({entryPlace()})),
                 .name = events::intern(why),
                 .kind = events::Kind::kEager});
  }
  return callEager(args);
}

}  // namespace kintsugi::driver
