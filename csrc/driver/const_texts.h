// Texts for people about what a recording refers to: its constants and its arguments.
//
// GIL. No state. Runs no Python code of the program's.
#pragma once

#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

// Fills in Trace::constTexts and SourceTable::argNames. `function`: the entry.
void describeConstants(recording::Recording& recording, PyObject* function);

}  // namespace kintsugi::driver
