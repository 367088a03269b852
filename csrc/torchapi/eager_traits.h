// Properties of eager mode that differ between machines (does this build of torch round so?), found out once.
//
// Native code follows it where that costs nothing. Threads: any. GIL: not needed. Invalidation: none.
#pragma once

namespace kintsugi::torchapi {

// Is gelu() of a number far below zero a zero with its sign? Loops that multiply say so, fused ones lose the
// sign.
bool geluKeepsSign();

// Is there a device whose streams can be captured? None appears later.
bool hasCapturingDevices();

}  // namespace kintsugi::torchapi
