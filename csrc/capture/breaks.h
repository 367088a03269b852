// Graph breaks as the user sees them: where they are in the user's program, and as errors.
//
// A break inside a library (torch's own Python code) is shown at the line of the program that called it. No
// state; GIL.
#pragma once

#include <string>
#include <vector>

#include "capture/shadow.h"
#include "diag/diagnostic.h"

namespace kintsugi::capture {

// A diagnostic at the current instruction of `frame` (null: nowhere), with the recorded frames as its stack.
diag::Diagnostic diagnosticAt(const ShadowFrame* frame, diag::Code code, std::vector<std::string> args);

// The Python frames of this thread, outermost first.
std::vector<diag::SourceLoc> runningFrames();

// True for a Python file of torch, the standard library or this package, as opposed to the program's.
bool isLibrary(const std::string& file);

// Sets kintsugi.GraphBreakError. `why`: which setting makes the break an error, for the message.
void raiseGraphBreak(const diag::Diagnostic& diagnostic, const char* why);

}  // namespace kintsugi::capture
