// Stand-ins: objects of classes in kintsugi._polyfills where a program expects another type (the groups of
// itertools.groupby). They may live in frames of the trace; none may leave it.
//
// The recording thread, GIL held.
#pragma once

#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

bool isStandIn(const Virtual& v);
// True if a stand-in is among the parts of the object.
bool holdsStandIn(VirtualTable& virtuals, Shadow shadow);

}  // namespace kintsugi::capture
