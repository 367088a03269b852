// Have classes been registered with an ABC (`Sequence.register(Mine)`)? Until one is, an ABC that has said no
// of a class says no again: it keeps its answers. A yes stays one for good.
//
// A trace that rests on a no is guarded by the count of registrations, which is part of the global state. It
// is counted from the first such trace on, so that processes without one pay nothing.
//
// Threads: the GIL is needed. No pending exception is lost, and none is left.
#pragma once

#include <cstdint>

namespace kintsugi::pyapi {

void watchAbcs();
// Since watchAbcs() was called first; 0 before.
uint64_t abcRegistrations();

}  // namespace kintsugi::pyapi
