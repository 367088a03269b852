// Which sources are resolved from the result of an opaque step. Liveness (ir/liveness.h) needs it: such a
// result is used until its sources are resolved.
//
// Borrows the table; the result is the caller's. No GIL.
#pragma once

#include "guard/source.h"
#include "ir/liveness.h"

namespace kintsugi::guard {

ir::SourceRoots sourceRoots(const SourceTable& sources);

}  // namespace kintsugi::guard
