// CompiledFunction: alternates calls between traces and eager mode, while it is not known which is faster.
//
// Some programs are faster in eager mode: they take another path in each call, or most of their work is
// Python's and not torch's. support/payoff.h decides by timing the program's own calls; nothing is computed
// twice.
#include "diag/events.h"
#include "diag/log.h"
#include "driver/compiled_function.h"
#include "driver/native_segments.h"

namespace kintsugi::driver {

namespace log = diag::log;

namespace {

std::string microseconds(uint64_t ns) { return std::to_string((ns + 500) / 1000) + " us"; }

}  // namespace

// May calls run in eager mode because that is faster? Not where breaks are errors, where a backend is to get
// its graphs, or where native code is waited for.
bool CompiledFunction::countsCost() const {
  const bool keeps = options_.fullgraph || options_.backend || options_.native.sync;
  return settings().eagerWhenFaster && !keeps;
}

void CompiledFunction::addEvidence(uint64_t weight) {
  if (countsCost()) payoff_.addEvidence(weight);
}

// Runs a call that no trace fits in eager mode, since the recording budget is used up, and times it.
PyObject* CompiledFunction::callPlain(const pyapi::Arguments& args) {
  const uint64_t start = diag::events::nowNs();
  PyObject* result = eagerBecause("recordings have taken their share of the time", args);
  budget_.ranPlain(diag::events::nowNs() - start);
  noteMissed();
  return result;
}

void CompiledFunction::noteMissed() {
  ++missed_;
  if (countsCost() && payoff_.missed()) logPrefersEager();
}

bool CompiledFunction::noteIdle(runtime::CompiledTrace& trace) {
  if (!countsCost() || options_.exporting || trace.trace().countOf(ir::Op::kAten) > 0) return false;
  trace.idle = true;
  if (log::enabled(log::Channel::kPerf))
    log::emit(log::Channel::kPerf, diag::Diagnostic(diag::Code::KTG0116, {}, entryPlace()).format());
  return true;
}

bool CompiledFunction::isIdle(runtime::CompiledTrace& trace) {
  // An idle trace is looked at again in one of so many calls: more often costs eager calls their time, more
  // seldom leaves a program that has changed in eager mode for longer.
  constexpr uint32_t kLook = 64;
  return trace.idle && ++trace.idleCalls % kLook != 0;
}

bool CompiledFunction::isNativePending() const {
  NativeCounts native;
  for (const auto& trace : cache_.traces()) countNative(*trace, native);
  return native.segments > native.ready + native.plain + native.refused;
}

PyObject* CompiledFunction::callCompared(const pyapi::Arguments& args) {
  // A call within a timed one (recursion, another thread) is part of its time.
  if (comparing_ || errorOnGraphBreak() || !settings().eagerWhenFaster) return callCompiled(args);
  const Payoff::Mode mode = payoff_.next();
  const auto go = [&] {
    if (mode == Payoff::Mode::kEager) return eagerBecause("it takes less time", args);
    const uint64_t missed = missed_;
    PyObject* result = callCompiled(args);
    if (missed_ == missed) payoff_.hit();
    return result;
  };
  if (payoff_.isUntimed()) {
    if (payoff_.asksForNative() && !isNativePending()) payoff_.nativeIsReady();
    return go();
  }
  const uint64_t recordings = recordings_;
  comparing_ = true;
  const uint64_t start = diag::events::nowNs();
  PyObject* result = go();
  const uint64_t ns = diag::events::nowNs() - start;
  comparing_ = false;
  if (payoff_.addSample(mode, ns,
                        {.recorded = recordings_ != recordings, .nativePending = isNativePending()})) {
    logPrefersEager();
  }
  return result;
}

void CompiledFunction::logPrefersEager() {
  if (!log::enabled(log::Channel::kPerf)) return;
  const diag::Diagnostic what(diag::Code::KTG0114,
                              {microseconds(payoff_.eagerTime()), microseconds(payoff_.traceTime())},
                              entryPlace());
  log::emit(log::Channel::kPerf, what.format());
}

}  // namespace kintsugi::driver
