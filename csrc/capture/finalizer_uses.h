// Checks on a whole trace in which finalizers have run (finalizer_tracker.h).
//
// Pure functions of a document. Example: if (!usesEndAtFinalizers(document, letGo)) ... the trace is no good
#pragma once

#include <vector>

#include "guard/document.h"

namespace kintsugi::capture {

// True if neither an object itself nor a guard that starts at it is used after the call of the constant
// `letGo` that drops the object.
bool usesEndAtFinalizers(const guard::Document& document, ir::ConstId letGo);
// The results of steps that the trace returns, directly or inside an object that it builds.
std::vector<ir::ValueId> returnedSteps(const guard::Document& document);

}  // namespace kintsugi::capture
