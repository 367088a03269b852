// map and filter objects of the trace that are not consumed where they are made. See lazy.cc.
//
// Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/calls/model.h"

namespace kintsugi::capture {

// The model of a call of map() or filter(); nothing: the trace could not follow its iterators.
std::optional<Flow> keptForLater(CallContext& ctx, Shadow& result);
bool isKept(RecordContext& rec, Shadow shadow);
// Does code that the trace records make the items of an iterable: a kept object, a generator, a Python
// __iter__?
bool asksPython(RecordContext& rec, Shadow shadow, PyObject* object);
// A tensor whose number of rows is only known in each run: what asks for its items has to be frames that an
// exit can rebuild, and none of C's.
bool hasOpenLength(RecordContext& rec, Shadow shadow, PyObject* object);
// The polyfill that does what C code does to make a list of such.
PyObject* listFunction(PyObject* iterable);

}  // namespace kintsugi::capture
