// Whether a generator's code catches exceptions, so that code of the program runs when it is closed.
//
// Since CPython 3.12 each generator has a handler that nobody wrote, which turns StopIteration into
// RuntimeError, and each `yield from` has one. Constant for a code object; GIL held. Example:
//
//   if (!hasOwnHandlers(pyapi::codeOf(generator))) ...  // it ends quietly
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::capture {

// True if the code has a `try`, a `with` or anything else that the program wrote to catch exceptions.
bool hasOwnHandlers(PyCodeObject* code);

}  // namespace kintsugi::capture
