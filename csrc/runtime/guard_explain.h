// Says which guard of a block fails first, in words for the recompile report.
//
// Works on a copy of the walk, so the memo is not touched. Never runs Python code, never leaves an exception
// pending. Threads: the GIL is needed. Ownership: the result owns its strings.
#pragma once

#include "runtime/guard_block.h"

namespace kintsugi::runtime {

// What a guard is about, as the user would write it: `self.fc.weight`. kNone: nothing that has a name.
std::string describeGuard(const recording::Recording& recording, uint32_t guard);
// The objects at the sources as they are now, by SourceId; null: there is none, or a step's result is at the
// root of its path.
std::vector<pyapi::Ref<>> resolveSources(const recording::Recording& recording, const pyapi::Arguments& args);
GuardFailure explainBlock(const recording::Recording& recording, Block& block, const Inputs& in);

}  // namespace kintsugi::runtime
