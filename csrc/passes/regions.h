// Regions of a trace: what lies between a call that opens one and the call that closes it (ir/trace.h).
//
//   %2 = call.known #4, %1 opens : object
//   %3 = aten.sin.default %0 : tensor       computed again in the backward: an activation checkpoint
//   %4 = call.known #5, $7 closes : object
//
// A region that is nothing but tensor operations is *whole*: a graph may hold it with both ends. The backend
// that computes the graph then implements the region (recomputes it in the backward). All others stay out of
// graphs: there, the program's own function runs a second time.
//
// Plain functions, no state, no GIL. Linear in the size of the trace, times the nesting of regions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/trace.h"

namespace kintsugi::passes {

struct Region {
  uint32_t opens = 0;   // index of the call
  uint32_t closes = 0;  // likewise; the number of instructions: it never is
  bool whole = false;
};
// In the order in which they are opened, those inside others included. `start`: the trace's own part begins
// there; one that its parent has opened begins before. `mayBeInside`: is an instruction, which is no end of a
// region, one that a whole region may hold?
std::vector<Region> findRegions(const ir::Trace& trace, uint32_t start,
                                const std::function<bool(const ir::Instruction&)>& mayBeInside);

}  // namespace kintsugi::passes
