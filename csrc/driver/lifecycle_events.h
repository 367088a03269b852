// Events in the life of a compiled callable's traces, for the event stream. Each function does nothing while
// the stream is off. GIL; no state.
#pragma once

#include "driver/compiled_function.h"

namespace kintsugi::driver {

void emitBreak(const diag::Diagnostic& diagnostic);
void emitRecompile(const runtime::CompiledTrace& failed, const Recompile& report);
void emitEviction(const runtime::CompiledTrace& old, size_t limit);
// `side` starts where `parent` was left: at the guard instruction `guard`, in `state`.
void emitSideTrace(const runtime::CompiledTrace& parent, uint32_t guard, ir::StateId state,
                   const runtime::CompiledTrace& side);

// `source` of the failed trace varies, in the sizes whose bits are set (0: it is a number).
void emitDynamic(const runtime::CompiledTrace& failed, const std::string& source, uint64_t sizes);
// The text of such a set: `size 0, 2`, or `value`.
std::string varyingText(uint64_t sizes);

}  // namespace kintsugi::driver
