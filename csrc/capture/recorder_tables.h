// All tables of a recording, for functions of the recording (csrc/capture/*.cc without a state of their own).
//
// A part is given the tables that it works on, one by one, and does not include this header. Record handlers
// and models of C callables ask a part instead: scripts/check_layers.py keeps this header out of them.
//
// Ownership: references into the Recorder. The recording thread, GIL held. Example:
//
//   for (const auto& frame : rec.tables.frames.all()) ...
#pragma once

#include "capture/record_context.h"
#include "capture/tables/attribute_log.h"
#include "capture/tables/restored_frames.h"

namespace kintsugi::capture {

struct RecorderTables {
  const RecorderOptions& options;
  guard::Document& document;
  torchapi::OpRecorder& operators;
  AliasList& aliases;
  AttributeLog& attributes;
  BreakLog& breakLog;
  ClassVersions& classVersions;
  ConstantPool& constants;
  DeadObjects& dead;
  ExceptionLog& exceptions;
  FinalizedObjects& finalized;
  FinalizerTracker& finalizers;
  FrameStack& frames;
  FrozenObjects& frozen;
  GuardBlocks& blocks;
  KnownSources& sources;
  RestoredFrames& restored;
  SourceSet& sameTensors;
  SourceSet& openTensors;
  SizeReads& sizeReads;
  VirtualTable& virtuals;
};

}  // namespace kintsugi::capture
