// What a recording needs from its driver, and what it gives back: a guarded trace, or why there is none.
//
// The result owns all that the trace refers to; the driver moves it into the installed trace. GIL held.
// Example: auto result = recorder.finish(); if (result->failure) runEagerly(*result->failure);
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/ending_places.h"
#include "capture/open_attributes.h"
#include "capture/shadow.h"
#include "recording/recording.h"
#include "torchapi/op_recorder.h"
#include "torchapi/sym_number.h"

namespace kintsugi::capture {

struct RecorderOptions {
  size_t maxInstructions = 200000;
  bool reportCompiling = true;
  int dynamic = -1;  // kintsugi.compile(dynamic=...): -1 what varies, 0 nothing, 1 all sizes and arguments
  bool assumeStatic = true;  // config.assume_static_by_default
  // Path hashes of numbers, strings and lengths that vary, and hashes of operators whose results vary.
  const std::unordered_set<uint64_t>* dynamicSources = nullptr;
  // Path hashes of tensors whose sizes vary, each with its dimensions as bits.
  const std::unordered_map<uint64_t, uint64_t>* dynamicSizes = nullptr;
  const OpenAttributes* openAttributes = nullptr;  // class attributes that the program sets while it runs
  bool pinLikely = true;                           // guards guess the sizes of some results (capture/sizes.h)
  bool fullgraph = false;                          // a break is an error
  bool (*errorOnBreak)() = nullptr;                // called at a break; true: the break is an error
  const std::unordered_set<PyObject*>* opaqueCodes = nullptr;  // code that is called as an opaque step
  const EndingPlaces* endingPlaces = nullptr;                  // writes that ended objects in earlier runs
};

// The result of a recording.
struct CaptureResult {
  std::optional<diag::Diagnostic> failure;
  std::optional<diag::Diagnostic> refused;  // a break that was raised as an error in the middle of the call
  PyObject* failedIn =
      nullptr;             // the code object to be made an opaque step next time; null: the entry itself
  OpenAttributes written;  // attributes of classes that the call has set
  recording::Recording recording;  // after a failure only its breaks
};

}  // namespace kintsugi::capture
