// A segment's native plan: tensor graph, passes, kernels, and what runs them.
//
// Pure function of its arguments (and of torch's operators); needs no GIL and may run on any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/native_variants.h"
#include "ir/result_version.h"
#include "ir/trace.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

struct NativeSummary {
  size_t instructions = 0;  // operators of the segment
  size_t kernels = 0;
  size_t calls = 0;
  bool plain = false;  // no plan: it would be calls of the operators that the segment consists of
  int64_t peak = 0;    // bytes of what it makes, at once, sizes being those that were seen
  // What variants make a difference for.
  size_t products = 0, tiled = 0, attention = 0;
  std::string graph;  // as text, if it is asked for
};

// What a segment is compiled from.
struct NativeSegmentInfo {
  ir::Trace segment;                               // by passes::extractSegment
  std::vector<runtime::NativePlan::Input> inputs;  // what each input is
  bool strict = false;
  bool contract = false;     // operators may be rounded as one (docs/internals/native.md, Numerics)
  bool keepMemory = false;   // of what does not leave the segment, for the next run
  bool callsOnly = false;    // operator by operator, with autograd's part
  bool restride = false;     // what calls return may lie otherwise than described: it is copied
  bool needsKernels = true;  // without any, the segment is refused
  bool autotune = false;     // variants are tried
  // What version counters say of its results, by the writes of the program: some of them are no operators of
  // the segment any more once it is prepared.
  std::vector<ir::ResultVersion> versions = {};
};

// Null, with a reason, where the segment stays with replay.
std::unique_ptr<runtime::NativePlan> buildNativePlan(const NativeSegmentInfo& info, NativeSummary& summary,
                                                     std::string& reason, const NativeVariant& variant = {});

}  // namespace kintsugi::driver
