// Checks how a native plan uses memory: the flow of slots through its steps. The driver describes the plan
// (runtime/native_plan.h) as a PlanFlow. Rules:
//
//   order     a slot is made once, before it is read or written to, and not used after it was dropped;
//             inputs, outputs and what stays with the frame are never dropped, all others exactly once
//   inputs    memory of an input is written to only where the plan says so; the program's own tensors are
//             never overwritten by results
//   over      a tensor that is overwritten is dropped in that step, and overwritten once. (Whether a view
//             still uses it is asked in each run: torchapi::isSoleOwner.)
//   places    two tensors that share kept memory do not live at the same time
//   steady    a step whose results stay with the frame uses only what stays
//   outputs   are inputs or were made
//
// Plain data; linear in the number of uses. No state, no GIL.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/verifier.h"

namespace kintsugi::passes {

struct PlanStep {
  struct Made {
    uint32_t slot = 0;
    uint32_t place = ir::kNone;  // kept memory that it shares
    uint32_t over = ir::kNone;   // the slot whose memory it takes over
  };
  std::vector<uint32_t> reads;   // slots
  std::vector<uint32_t> writes;  // slots whose memory it writes to, what it makes included
  std::vector<Made> makes;
  std::vector<uint32_t> drops;
};

struct PlanFlow {
  size_t slotCount = 0;
  size_t inputCount = 0;  // the first slots
  std::vector<PlanStep> steps;
  std::vector<uint32_t> outputs;                       // kNone: an undefined tensor
  std::vector<uint32_t> written;                       // inputs that are written to
  std::vector<std::pair<uint32_t, uint32_t>> aliases;  // the second may be a view of the first
  size_t steadySteps = 0;
  std::vector<uint32_t> steadySlots;
};

// Empty: the plan is valid.
std::vector<ir::Problem> verify(const PlanFlow& plan);

}  // namespace kintsugi::passes
