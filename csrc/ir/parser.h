// Reads the text form of a trace (ir/printer.h). An error is a KTG0001 diagnostic with line and column,
// whatever the bytes: it never aborts, and it allocates no more than a small multiple of the text's length.
// What it accepts is well-formed text, not yet a valid trace: that is the verifier's business.
//
// The result owns everything. No GIL, no state.
#pragma once

#include <string_view>

#include "diag/diagnostic.h"
#include "ir/text.h"
#include "ir/trace.h"

namespace kintsugi::ir {

diag::Result<Trace> parseTrace(std::string_view text);

// One `trace ... { }`, leaving the cursor after it; errors are the cursor's. For texts that a trace is a
// part of.
Trace readTrace(Cursor& cursor);

}  // namespace kintsugi::ir
