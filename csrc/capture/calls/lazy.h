// map and filter objects of the trace that are not consumed where they are made. See lazy.cc.
//
// Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/calls/model.h"

namespace kintsugi::capture {

// The model of a call of map() or filter(); nothing: the trace could not follow its iterators.
std::optional<Flow> keptForLater(CallContext& ctx, Shadow& result);
bool isKept(Recorder& rec, Shadow shadow);

}  // namespace kintsugi::capture
