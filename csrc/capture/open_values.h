// Texts and lengths that have been others in several recordings (RecorderOptions::dynamicSources): they are
// *open*.
//
// What is made of an open text is a step of the trace, as if a step had given it; a list or dict of open
// length is asked in each run, and nothing of what is in it is guarded. Questions to the recorder; GIL held.
// Example:
//   def f(x, tag): log.append(tag.upper())     # one trace, once `tag` was another one often enough
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

bool isOpenText(RecordContext& rec, Shadow shadow);
// An open one, or one that a step gave.
bool isVaryingText(RecordContext& rec, Shadow shadow, PyObject* object);
// A list or dict of open length, or a list that a step has made of one.
bool hasVaryingLength(RecordContext& rec, PyObject* container);

}  // namespace kintsugi::capture
