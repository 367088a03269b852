// In which order CPython's evaluator does what a program may see.
//
// Threads: any. Example: if (dropsLastVariableFirst()) ...
#pragma once

namespace kintsugi::pyapi {

// Signals and other requests are served before a backward jump, so that an exception is raised at the jump.
// False: behind it, and the exception is raised just before the target.
bool servesBeforeJump();

// A frame that is over lets go of its last variable first, and a call of its last argument. False: of the
// first.
bool dropsLastFirst();

// tuple(x) asks x for its length before its items, as list(x) does.
bool tupleAsksLength();

}  // namespace kintsugi::pyapi
