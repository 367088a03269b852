// What record handlers and models of C callables see of a recording.
//
// A handler asks a part for what it needs (`rec.guards.pin(...)`, `rec.heap.storeItem(...)`) and never sees
// the Recorder itself. The tables of the parts are behind `tables`, an incomplete type here:
// capture/recorder_tables.h is for functions of the recording, and handlers and models do not include it
// (scripts/check_layers.py).
//
// Ownership: references to parts of the Recorder, which owns the context too. The recording thread, GIL held.
// Example:
//
//   Flow recordLoadConst(RecordContext& rec, ShadowFrame& frame, Activation& act, const Instr& instr) {
//     const Flow flow = rec.execute(act, instr);
//     frame.push(Shadow::constant());
//     return flow;
//   }
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "capture/aliases.h"
#include "capture/callees.h"
#include "capture/guards.h"
#include "capture/heap.h"
#include "capture/lifetimes.h"
#include "capture/objects.h"
#include "capture/plain_objects.h"
#include "capture/record_breaks.h"
#include "capture/snapshots.h"
#include "capture/special_methods.h"
#include "capture/steps.h"
#include "capture/stores.h"
#include "capture/torch_steps.h"
#include "capture/transforms.h"

namespace kintsugi::capture {

struct RecorderTables;

struct RecordContext {
  bool live() const { return breaks.isLive(); }
  // The call goes on unrecorded.
  void abort(diag::Code code, std::vector<std::string> args = {}) { breaks.abort(code, std::move(args)); }
  // Executes the instruction itself. A handler does this once.
  Flow execute(Activation& act, const Instr& instr) { return steps.execute(act, instr); }
  const guard::Document& document() const { return guards.document(); }
  ir::Trace& trace() const { return steps.trace(); }
  torchapi::OpRecorder& ops() const { return steps.ops(); }

  Guards& guards;
  Objects& objects;
  Heap& heap;
  Stores& stores;
  Snapshots& snapshots;
  Steps& steps;
  TorchSteps& torch;
  Callees& callees;
  Lifetimes& lifetimes;
  Breaks& breaks;

  // Tables that some handlers change themselves.
  CurrentInstruction& instruction;
  ExpectedFrames& expected;
  Pauses& pauses;
  Transforms& transforms;
  TransientStores& transient;
  WatchedGenerators& watched;
  SourceSet& openSlices;
  TraceFacts& facts;

  // The recorder's own (recorder_tables.h).
  RecorderTables& tables;
};

}  // namespace kintsugi::capture
