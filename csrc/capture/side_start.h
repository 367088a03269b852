// Where a side trace begins: a trace, the guard in it that failed, and the objects of the guard's snapshot.
//
// The recorder goes on as if it had recorded the trace up to the failed guard itself: with its values,
// sources and constants, in frames that were rebuilt (runtime/frame_rebuild.h). The trace up to there may
// have changed anything. So what the recorder reads from the heap is guarded again, in a new guard block
// right after the guard.
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
  ir::Operand seen;                // guard.value: the value of this run
  const ir::TensorDesc* seenMeta;  // guard.meta: the metadata of this run
  // The objects of the snapshot, by number.
  const std::unordered_map<uint32_t, pyapi::Ref<>>& values;
  const std::unordered_map<uint32_t, pyapi::Ref<>>& sources;
  const std::unordered_map<uint32_t, pyapi::Ref<>>& recipes;
};

}  // namespace kintsugi::capture
