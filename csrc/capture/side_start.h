// Where a side trace begins: a trace, the guard in it that failed, and the objects of the guard's snapshot.
//
// The recorder goes on from there as if it had recorded the trace up to the guard: with its values, sources
// and constants, in frames that were made again (runtime/frame_rebuild.h). What it reads from the heap it
// guards anew, in a guard block of its own right after the guard: the trace before may have changed anything.
//
// Ownership: borrows everything for the recording's beginning; the Recorder copies what it needs. GIL held.
// Example: Recorder rec(options, start); rec.frameOpened(i, frame) ...; rec.expectRestored(i); interpret it.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "recording/recording.h"

namespace kintsugi::capture {

struct SideStart {
  const recording::Recording& parent;
  uint32_t guard;                  // the instruction that failed
  ir::StateId state;               // its snapshot
  ir::Operand seen;                // guard.value: what was there instead
  const ir::TensorDesc* seenMeta;  // guard.meta: likewise
  // The objects of the snapshot, by number.
  const std::unordered_map<uint32_t, pyapi::Ref<>>& values;
  const std::unordered_map<uint32_t, pyapi::Ref<>>& sources;
  const std::unordered_map<uint32_t, pyapi::Ref<>>& recipes;
};

}  // namespace kintsugi::capture
