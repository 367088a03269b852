// Objects that the recorder holds too, and whose end the program would notice.
//
// Generators that run code when they are closed (tables/watched_generators.h), objects with a finalizer in C
// (finalized_objects.h) and objects with a finalizer in Python (finalizer_tracker.h) end where the program
// drops them, between two instructions. When the recording has ended, the recorder drops all of its
// references.
//
// Ownership: borrows the tables; is the host of the finalizer tracker. Owned by the Recorder; the recording
// thread, GIL held. Example, for `a = b`, which drops its reference to what `a` was:
//
//   rec.lifetimes.runDroppedFinalizers();
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/finalized_objects.h"
#include "capture/finalizer_tracker.h"
#include "capture/frame_roles.h"
#include "capture/generator_holders.h"
#include "capture/kept_objects.h"
#include "capture/roles.h"
#include "capture/tables/class_versions.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/guard_blocks.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/virtual_table.h"
#include "capture/tables/watched_generators.h"

namespace kintsugi::capture {

class Lifetimes final : private FinalizerTracker::Host {
 public:
  struct Roles {
    BreakSink& breaks;
    ConstantIds& constants;
    SnapshotMaker& snapshots;
    StaleReads& reads;
    GeneratorCloser& closer;
  };
  Lifetimes(const Roles& roles, GuardBlocks& blocks, ClassVersions& classVersions, ConstantPool& constants,
            guard::Document& document, FinalizedObjects& finalized, FinalizerTracker& finalizers,
            GeneratorHolders& holders, CurrentInstruction& instruction, KeptObjects& kept,
            KnownSources& sources, VirtualTable& virtuals, WatchedGenerators& watched)
      : breaks_(roles.breaks),
        constIds_(roles.constants),
        snapshots_(roles.snapshots),
        reads_(roles.reads),
        closer_(roles.closer),
        blocks_(blocks),
        classVersions_(classVersions),
        constants_(constants),
        document_(document),
        finalized_(finalized),
        finalizers_(finalizers),
        holders_(holders),
        instruction_(instruction),
        kept_(kept),
        sources_(sources),
        virtuals_(virtuals),
        watched_(watched) {}

  void runDroppedFinalizers();     // between two references that one instruction drops
  void watch(uint32_t generator);  // call when it was suspended: finds out if dropping it runs code
  bool closeDropped();             // between two instructions; true: something was closed
  // At the end of the call: objects that have not ended have to be part of the result.
  void checkWatched();
  void checkFinalizers();
  // At the end of the recording: drops the recorder's references, so that objects die when the program drops
  // them.
  void releaseObjects();
  bool isReleased() const { return released_; }
  FinalizerTracker::Host& host() { return *this; }

 private:
  void endFor(const std::string& what) override;
  void endAndRelease(const std::string& what) override;
  std::optional<ir::StateId> beginFinalizer(const std::string& name) override;
  void expectWrites() override { classVersions_.expectWrites(); }
  void finishFinalizer(ir::ValueId value, ir::StateId snap) override;

  BreakSink& breaks_;
  ConstantIds& constIds_;
  SnapshotMaker& snapshots_;
  StaleReads& reads_;
  GeneratorCloser& closer_;
  GuardBlocks& blocks_;
  ClassVersions& classVersions_;
  ConstantPool& constants_;
  guard::Document& document_;
  FinalizedObjects& finalized_;
  FinalizerTracker& finalizers_;
  GeneratorHolders& holders_;
  CurrentInstruction& instruction_;
  KeptObjects& kept_;
  KnownSources& sources_;
  VirtualTable& virtuals_;
  WatchedGenerators& watched_;
  bool released_ = false;
};

}  // namespace kintsugi::capture
