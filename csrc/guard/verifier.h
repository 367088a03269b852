// Is a whole document well formed? ir/verifier.h on its trace, then what ties trace, guards and sources
// together:
//
//   sources   parents come before children, and are resolved no later; keys are constants; the value that a
//             source starts at is defined before the guard block that resolves it
//   guards    their sources, constants, metadata and blocks exist, and the sources are resolved by then
//   trace     `guard.block` runs the blocks 1, 2, 3 ... in order and all of them; an instruction uses only
//             sources of blocks that have run; a block that can fail has a snapshot that can be rebuilt
//
// Borrows the document; no state, no GIL.
#pragma once

#include <vector>

#include "guard/document.h"
#include "ir/verifier.h"

namespace kintsugi::guard {

// Empty: the document is valid.
std::vector<ir::Problem> verify(const Document& document, ir::VerifierMode mode);

}  // namespace kintsugi::guard
