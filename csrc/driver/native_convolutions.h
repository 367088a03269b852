// Convolutions in native plans: where they are folded (passes/fold_convolutions.h, passes/channels_last.h),
// and what runs them.
//
// Pure functions; no GIL.
#pragma once

#include <optional>

#include "driver/native_plan_builder.h"

namespace kintsugi::driver {

// The segment with its convolutions folded and the channels last between them. Nothing: it is better as it
// is.
std::optional<NativeSegmentInfo> withFoldedConvolutions(const NativeSegmentInfo& info);

// The call of a `folded.convolution`, whose operands are slots. Always true.
bool makeConvolution(const ir::Trace& calls, uint32_t instruction, runtime::NativeDevice& device,
                     runtime::NativeCall& call);

}  // namespace kintsugi::driver
