// Which values a step of a trace is given: by its operands, by recipes of objects and by sources that start
// at the result of a step. What frames hold at its snapshot is not looked at.
//
// Plain functions over a document, no state, no GIL.
#pragma once

#include <functional>

#include "guard/document.h"

namespace kintsugi::guard {

// Is a step that is no part of a graph given one of the values for which `isMade` holds? Opaque calls, which
// see the frames around them, and blocks of guards count as given everything.
bool isGiven(const Document& document, const ir::Instruction& ins,
             const std::function<bool(ir::ValueId)>& isMade);

}  // namespace kintsugi::guard
