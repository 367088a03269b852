// What `frame.f_locals` is: the variables themselves, or a copy.
#pragma once

namespace kintsugi::pyapi {

// Does `frame.f_locals[name] = value` set the variable of a function (PEP 667)? Otherwise it is a copy.
bool localsAreWritable();

}  // namespace kintsugi::pyapi
