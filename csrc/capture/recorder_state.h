// The tables of a recording, one object each (capture/tables/).
//
// Invariant: every object that is a key by its identity is kept alive by `kept_`, a Virtual or an Overlay, so
// that no address means two objects at one time. Owned by the Recorder; the recording thread, GIL held; dies
// with the recording.
#pragma once

#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/call_context.h"
#include "capture/capture_result.h"
#include "capture/dead_objects.h"
#include "capture/finalized_objects.h"
#include "capture/finalizer_tracker.h"
#include "capture/kept_objects.h"
#include "capture/tables/attribute_log.h"
#include "capture/tables/break_log.h"
#include "capture/tables/class_versions.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/exception_log.h"
#include "capture/tables/expected_frames.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/frozen_objects.h"
#include "capture/tables/global_states.h"
#include "capture/tables/guard_writer.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/overlays.h"
#include "capture/tables/pauses.h"
#include "capture/tables/restored_frames.h"
#include "capture/tables/size_reads.h"
#include "capture/tables/torch_calls.h"
#include "capture/tables/virtual_table.h"
#include "capture/tables/watched_generators.h"
#include "capture/transforms.h"

namespace kintsugi::capture {

struct RecorderState {
  RecorderState(const RecorderOptions& options, FinalizerTracker::Host& host)
      : options_(options),
        finalizers_({breaks_, constants_, sources_, kept_, virtuals_, overlays_, frames_, instruction_, dead_,
                     pauses_},
                    host) {}

  RecorderOptions options_;
  guard::Document document_;
  torchapi::OpRecorder ops_;
  BreakLog breaks_;
  Pauses pauses_;
  GlobalStates states_;
  ExceptionLog exceptions_;
  ConstantPool constants_;
  VirtualTable virtuals_;
  DeadObjects dead_{virtuals_, pauses_};
  GuardBlocks blocks_;
  KnownSources sources_{document_.sources.nodes};
  GuardWriter guards_{document_, blocks_};
  FrozenObjects frozen_;
  KeptObjects kept_;
  Overlays overlays_;
  AttributeLog attributes_{options_.openAttributes};
  ClassVersions classVersions_{document_, constants_, attributes_};
  std::unordered_set<ir::SourceId> openSlices_;   // lists that steps have cut out of lists of open length
  std::unordered_set<ir::SourceId> sameTensors_;  // guarded to be tensors that the trace has made
  std::vector<std::pair<ir::SourceId, Shadow>> aliases_;  // see aliases.h
  SizeReads sizeReads_;
  TorchCalls torchCalls_;
  ExpectedFrames expected_;
  FrameStack frames_;
  RestoredFrames restored_;
  CurrentInstruction instruction_;
  WatchedGenerators watched_{virtuals_};
  Transforms transforms_;  // that are active
  FinalizedObjects finalized_{{kept_, sources_, virtuals_, exceptions_, dead_, pauses_, breaks_}};
  FinalizerTracker finalizers_;
  std::unordered_set<ir::RecipeId> runningRecipes_;  // hold a generator that runs: for snapshots only
  bool letGo_ = false;                               // the recording has ended, and its objects are freed
  bool finished_ = false;
  size_t argCount_ = 0;
  size_t partCount_ = 0;      // of all recipes
  int recursionAtStart_ = 0;  // levels that were left before the first frame; 0: there was none yet
  int recursion_ = 0;         // that the recorded frames took at most
  const char* bound_ = "";    // what the trace knows that holds in this process alone
  pyapi::Ref<> kwNames_;
  ir::GradientLimits gradients_;  // in what groups they are wanted (gradient_buckets.h)
};

}  // namespace kintsugi::capture
