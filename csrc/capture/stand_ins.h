// Objects of classes of kintsugi._polyfills that a program would see as objects of other types (the groups of
// itertools.groupby): they may live in frames of the trace, and none may leave it.
//
// The recording thread, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

bool isStandIn(const Virtual& v);
// Is one among the parts of what a shadow stands for?
bool holdsStandIn(RecordContext& rec, Shadow shadow);

}  // namespace kintsugi::capture
