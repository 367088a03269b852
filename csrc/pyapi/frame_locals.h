// What `frame.f_locals` is: the variables themselves, or a copy.
#pragma once

namespace kintsugi::pyapi {

// True if `frame.f_locals[name] = value` sets the variable of a function (PEP 667). False: f_locals is a
// copy.
bool localsAreWritable();

}  // namespace kintsugi::pyapi
