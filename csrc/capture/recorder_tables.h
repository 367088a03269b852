// What the parts of a recording know in common, beside what each of them is given.
//
// For the parts and for the functions that they are made of (csrc/capture/*.cc). Record handlers and models
// of C callables ask a part instead: scripts/check_layers.py keeps this header out of them.
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
  SizeReads& sizeReads;
  VirtualTable& virtuals;
};

}  // namespace kintsugi::capture
