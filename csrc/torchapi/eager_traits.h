// Properties of eager mode that differ between machines (how does this build of torch round?), found out
// once.
//
// Native code imitates them where that costs nothing. Threads: any. GIL: not needed. Invalidation: none.
#pragma once

#include "ops/gelu_form.h"

namespace kintsugi::torchapi {

const ops::GeluForms& geluForms();

// True if there is a device whose streams can be captured. If there is none, none appears later.
bool hasCapturingDevices();

}  // namespace kintsugi::torchapi
