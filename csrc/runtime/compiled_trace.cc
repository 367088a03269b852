#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

CompiledTrace::CompiledTrace(Recording recording)
    : recording_(std::move(recording)), guards_(recording_), replay_(recording_) {}

}  // namespace kintsugi::runtime
