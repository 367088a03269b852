// Pass dead-code: drops pure instructions whose results nothing needs, and then the values, recipes, frame
// states and sources that nothing needs.
//
// Needed are: instructions that are not pure (effects, guards, opaque steps, the return, and all torch
// operators, whose effects the IR does not know yet); what they use, through lists, recipes and the snapshots
// of those that may leave the trace; the sources of guards, and the steps whose results those start at.
// Guards are never dropped here, so that a trace accepts the same calls as before. Leaves a trace that
// fulfils ir::VerifierMode::kLowered. No GIL.
#pragma once

#include "guard/document.h"

namespace kintsugi::passes {

void eliminateDeadCode(guard::Document& document);

}  // namespace kintsugi::passes
