// What the event stream costs: off (the check alone, as on every call), and on (one event).
#include "diag/events.h"

#include <benchmark/benchmark.h>

namespace kintsugi::diag::events {
namespace {

void eventOff(benchmark::State& state) {
  stop();
  for (auto _ : state) {
    if (on()) emit({.startNs = nowNs()});
    benchmark::ClobberMemory();
  }
}
BENCHMARK(eventOff);

void eventOn(benchmark::State& state) {
  start();
  std::uint64_t n = 0;
  for (auto _ : state) {
    if (on()) emit({.startNs = nowNs(), .kind = Kind::kCall});
    if (++n % kDefaultCapacity == 0) {
      state.PauseTiming();
      drain();
      state.ResumeTiming();
    }
  }
  stop();
  drain();
}
BENCHMARK(eventOn);

}  // namespace
}  // namespace kintsugi::diag::events
