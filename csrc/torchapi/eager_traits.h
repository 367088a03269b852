// What eager mode's own kernels answer differently from processor to processor, asked once.
//
// Native code follows them where that costs nothing. Threads: any. GIL: not needed. Invalidation: none.
#pragma once

namespace kintsugi::torchapi {

// Is gelu() of a number far below zero a zero with its sign? Loops that multiply say so, fused ones lose the
// sign.
bool geluKeepsSign();

}  // namespace kintsugi::torchapi
