// Strings and lengths that differed in several recordings (RecorderOptions::dynamicSources): they are *open*.
//
// An operation on an open string is a step of the trace, as if a step had returned the string. A list or dict
// of open length is asked in each run, and its items are not guarded. Functions of the recording under way;
// GIL held. Example:
//  def f(x, tag): log.append(tag.upper())     # one trace for all tags, once `tag` has differed often enough
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

bool isOpenText(RecordContext& rec, Shadow shadow);
// True for an open string, and for a string that a step has returned.
bool isVaryingText(RecordContext& rec, Shadow shadow, PyObject* object);
// True for a string that varies, and for a number that each run computes: as keys of a dict they are looked
// up in each run. What follows is guarded on what was found: on the function, say, and not on the key.
bool isVaryingKey(RecordContext& rec, Shadow shadow, PyObject* key);
bool isVaryingLookUp(RecordContext& rec, Shadow shadow, PyObject* key, PyObject* dict);
// Pins what is a key of a dict, or a member of a set. False where hashing it would run code of the program
// (capture/hashes.h), where it can't be pinned, or where the recording has ended.
bool pinKey(RecordContext& rec, Shadow& shadow, PyObject* key);
// True for a list or dict of open length, and for a list that a step has made of one.
bool hasVaryingLength(RecordContext& rec, PyObject* container);

}  // namespace kintsugi::capture
