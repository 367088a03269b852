// Runs every Python frame of the process through our interpreter, without recording: the mode in which
// CPython's own test suite checks the interpreter (`kintsugi._interpret_everything()`,
// KINTSUGI_INTERPRET_ALL=1).
//
// Threads: process-wide; the GIL is needed. Frames that run when it is switched go on where they are
// evaluated.
#pragma once

#include <cstdint>

namespace kintsugi::driver {

void setInterpretAll(bool on);
bool interpretAll();

// Frames that the interpreter has evaluated in this mode since the process started (resumed generators count
// again).
uint64_t interpretedFrames();

}  // namespace kintsugi::driver
