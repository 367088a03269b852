// Properties of eager mode that differ between machines and releases of torch (how does this build round?
// which formula is a derivative?), found out once.
//
// Native code imitates them where that costs nothing. Threads: any. GIL: not needed. Invalidation: none.
#pragma once

#include "ops/clamp_gradients.h"
#include "ops/gelu_form.h"

namespace kintsugi::torchapi {

const ops::GeluForms& geluForms();

// Asks autograd. The module asks first, when it is imported: a node takes the GIL where torch looks for
// anomalies, and no thread may wait for this one meanwhile.
const ops::ClampGradients& clampGradients();

// True if there is a device whose streams can be captured. If there is none, none appears later.
bool hasCapturingDevices();

}  // namespace kintsugi::torchapi
