// What a log channel that is off costs at the place that would log, and what a diagnostic costs to make and
// format.
#include <benchmark/benchmark.h>

#include "diag/log.h"

namespace kintsugi::diag {
namespace {

void logChannelOff(benchmark::State& state) {
  log::disableAll();
  for (auto _ : state) {
    benchmark::DoNotOptimize(log::enabled(log::Channel::kTrace));
  }
}
BENCHMARK(logChannelOff);

void logEventToTheRing(benchmark::State& state) {
  log::setEnabled(log::Channel::kTrace, true);
  for (auto _ : state) {
    log::emit(log::Channel::kTrace, "[TRACE 2 (1/3) f.py:44 -> 1]");
  }
  log::disableAll();
  log::clear();
}
BENCHMARK(logEventToTheRing);

void formatDiagnostic(benchmark::State& state) {
  const Diagnostic diagnostic(Code::KTG0201, {"x.shape[0]", "8", "16"}, SourceLoc{"f.py", 44, "forward"});
  for (auto _ : state) {
    benchmark::DoNotOptimize(diagnostic.format());
  }
}
BENCHMARK(formatDiagnostic);

}  // namespace
}  // namespace kintsugi::diag
