// The trace of a recording in which finalizers have run (finalizer_tracker.h), looked at as a whole.
//
// Pure functions of a document. Example: if (!usesEndAtFinalizers(document, letGo)) ... the trace is no good
#pragma once

#include <vector>

#include "guard/document.h"

namespace kintsugi::capture {

// After a call of the constant `letGo`, which drops its reference to a value: neither the object itself is
// used, nor a guard that starts at it.
bool usesEndAtFinalizers(const guard::Document& document, ir::ConstId letGo);
// The results of steps that the trace returns, themselves or in what it builds.
std::vector<ir::ValueId> returnedSteps(const guard::Document& document);

}  // namespace kintsugi::capture
