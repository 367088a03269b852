// Tells the log that a run has left its trace (KTG0203), and where in the user's program.
//
// GIL. No state. Costs one test while the log's channel is off.
#pragma once

#include "ir/types.h"

namespace kintsugi::runtime {

class CompiledTrace;

void reportSideExit(const CompiledTrace& trace, ir::StateId state);

}  // namespace kintsugi::runtime
