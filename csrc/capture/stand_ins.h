// Objects of classes of kintsugi._polyfills that a program would see as objects of other types (the groups of
// itertools.groupby): they may live in frames of the trace, and none may leave it.
//
// The recording thread, GIL held.
#pragma once

#include "capture/recorder.h"

namespace kintsugi::capture {

bool isStandIn(const Virtual& v);
// Is one among the parts of what a shadow stands for?
bool holdsStandIn(Recorder& rec, Shadow shadow);

}  // namespace kintsugi::capture
