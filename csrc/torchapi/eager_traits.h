// Properties of eager mode that differ between machines (how does this build of torch round?), found out
// once.
//
// Native code imitates them where that costs nothing. Threads: any. GIL: not needed. Invalidation: none.
#pragma once

namespace kintsugi::torchapi {

// True if gelu() of a number far below zero is -0.0. Loops that multiply keep the sign; fused ones lose it.
bool geluKeepsSign();

// True if there is a device whose streams can be captured. If there is none, none appears later.
bool hasCapturingDevices();

}  // namespace kintsugi::torchapi
