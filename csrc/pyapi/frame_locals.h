// What `frame.f_locals` of a function is: the variables themselves, or a copy.
//
//   sys._getframe().f_locals["n"] = 2       sets n from CPython 3.13 on (PEP 667), a copy of it before
//
// Constant for a version of CPython. No GIL.
#pragma once

namespace kintsugi::pyapi {

// True if `frame.f_locals[name] = value` sets the variable of a function (PEP 667). False: f_locals is a
// copy.
bool localsAreWritable();

}  // namespace kintsugi::pyapi
