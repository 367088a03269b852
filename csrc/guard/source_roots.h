// Which sources hang on the result of an opaque step: what ir/liveness.h has to know about sources.
//
// Borrows the table; the result is the caller's. No GIL.
#pragma once

#include "guard/source.h"
#include "ir/liveness.h"

namespace kintsugi::guard {

ir::SourceRoots sourceRoots(const SourceTable& sources);

}  // namespace kintsugi::guard
