// map and filter objects that the trace makes in one place and that are consumed in another. See lazy.cc.
//
// Thread: the recording one, GIL held.
#pragma once

#include <optional>

#include "capture/calls/model.h"

namespace kintsugi::capture {

// The model of a call of map() or filter(). Nothing: the trace can't follow its iterators.
std::optional<Flow> lazyIteratorModel(CallContext& ctx, Shadow& result);
bool isLazyIterator(RecordContext& rec, Shadow shadow);
// True if recorded code makes the items of the iterable: it is such an object, a generator, or has a Python
// `__iter__`.
bool itemsRunPython(RecordContext& rec, Shadow shadow, PyObject* object);
// True for a tensor whose number of rows is only known in each run. Code that takes its items has to be in
// frames that can be rebuilt, not in C.
bool hasOpenLength(RecordContext& rec, Shadow shadow, PyObject* object);
// True for an iterable whose items the trace makes one by one: one of the above, or a zip() or enumerate().
bool isAskedForItems(RecordContext& rec, Shadow shadow, PyObject* object);
// The polyfill that makes a list of such an iterable, as list() does.
PyObject* listFunction(PyObject* iterable);

}  // namespace kintsugi::capture
