// A whole recording as text and data: sources, guards and the trace. `parse(print(d)) == d`, compared with
// equal().
//
//   sources {
//     args "self", "x"
//     $0 = arg 0  ; self
//     $1 = value %3 block=1  ; %3
//   }
//   guards 0 {
//     type $0 #1
//   }
//   trace @f.py:3 f { ... }
//
// Sections without content are left out. A source's path follows it as a comment.
// Plain data that owns everything; constant after recording. No GIL.
#pragma once

#include <string>
#include <string_view>

#include "diag/diagnostic.h"
#include "guard/guard.h"
#include "ir/trace.h"

namespace kintsugi::guard {

struct Document {
  SourceTable sources;
  GuardSet guards;
  ir::Trace trace;
};

std::string print(const Document& document);
// One guard with the path of its source as a comment, for logs: `type $3 #1  ; self.layers`.
std::string print(const Document& document, const Guard& guard);
// Errors are KTG0001 diagnostics with line and column. A well-formed text need not be a valid document
// (verifier.h).
diag::Result<Document> parse(std::string_view text);
// The same sources, guards and trace, as ir::equal() compares traces.
bool equal(const Document& a, const Document& b);

}  // namespace kintsugi::guard
