// In which order CPython's evaluator does what a program may see.
//
// Threads: any. Example: if (dropsLastVariableFirst()) ...
#pragma once

namespace kintsugi::pyapi {

// Signals and other requests are served before a backward jump, so that an exception is raised at the jump.
// False: behind it, and the exception is raised just before the target.
bool servesBeforeJump();

// A frame that is over lets go of its last variable first, a call of its last argument, and most instructions
// of their last operand. False: of the first. (BINARY_OP drops its left operand first in all versions.)
bool dropsLastFirst();

// tuple(x) asks x for its length before its items, as list(x) does.
bool tupleAsksLength();

}  // namespace kintsugi::pyapi
