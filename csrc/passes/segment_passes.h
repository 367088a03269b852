// The passes over a segment: the trace of its own that native code is made of (passes/extract_segment.h).
//
// A pass is a row of segment_passes.cc: a function, and the name by which file tests (`; test:
// segment-pass=expand-einsums`), logs and statistics know it. Each is timed (passes/pass_statistics.h); where
// verification is on, the segment is verified as it comes and behind each pass; with
// KINTSUGI_LOGS=graph_passes the segment is printed as it comes and behind each pass that changed it.
//
//   passes::prepareSegment({segment, {.traits = operatorTraits}});
//
// Pure functions of the segment. Any thread. No GIL.
#pragma once

#include <span>
#include <string_view>

#include "ir/trace.h"
#include "passes/segments.h"

namespace kintsugi::passes {

struct SegmentPassOptions {
  OperatorTraitsFn traits;  // what operators read and write
  bool contract = true;     // norms may be folded into convolutions, which rounds otherwise
};

struct SegmentPassUnit {
  ir::Trace& segment;
  SegmentPassOptions options;
};

struct SegmentPass {
  const char* name;
  bool (*run)(SegmentPassUnit& unit);  // false: the segment is as it was
};

std::span<const SegmentPass> segmentPasses();
// nullptr: there is no pass of this name.
const SegmentPass* findSegmentPass(std::string_view name);

// Runs passes one after the other, until one leaves the segment as it was where `untilNone`. True: the last
// one that ran has changed it.
bool runSegmentPasses(SegmentPassUnit unit, std::span<const SegmentPass* const> passes, bool untilNone);

// What each segment goes through when it has been extracted.
void prepareSegment(SegmentPassUnit unit);
// Folds convolutions with what surrounds them, and puts their channels last. False: that does not pay, and
// the segment, which may have been changed, is not to be used.
bool foldAndLayOut(SegmentPassUnit unit);

// Where verification is on: a segment that is not valid is a failed check.
void checkSegment(const ir::Trace& segment, std::string_view when);

}  // namespace kintsugi::passes
