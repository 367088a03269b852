// What the locals of a frame are to somebody who asks for `f_locals`.
#pragma once

namespace kintsugi::pyapi {

// Does `frame.f_locals[name] = value` set the variable of a function (PEP 667)? Otherwise it is a copy.
bool localsAreWritable();

}  // namespace kintsugi::pyapi
