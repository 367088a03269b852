// What C code can read of an object that is pinned by its identity: names of functions and classes, which can
// be set, and the question whether a result computed from it is a constant.
//
// Functions of the recording under way; GIL held.
#pragma once

#include <optional>
#include <string_view>

#include "capture/record_context.h"

namespace kintsugi::capture {

// The `__name__` or `__qualname__` of an older function or class, guarded when it is used. Nothing: it can't
// change, or it is another attribute.
std::optional<Shadow> shownName(RecordContext& rec, Shadow shadow, PyObject* object,
                                std::string_view attribute);
// The program sets an attribute of an older object. If it is one of its names, or another field of a class
// that C code has made, a step sets it, and steps ask for such attributes of the object from now on.
void noteRename(RecordContext& rec, PyObject* object, PyObject* attribute);
bool isRenamed(RecordContext& rec, PyObject* object);
// The result's text includes the object's names, so these are guarded. False: the trace has set them.
bool guardNames(RecordContext& rec, PyObject* object);
// The same for functions and classes of the trace that a message of C code may name.
bool guardNamesIn(RecordContext& rec, PyObject* message);
// True if everything that C code can read of the object is pinned with it, so that the result of the call is
// a constant. An object whose identity alone is pinned may have another state in the next call. `attributes`:
// the call reads attributes, which a class or module may get anew.
bool canFold(RecordContext& rec, Shadow shadow, PyObject* object, bool attributes = false);

}  // namespace kintsugi::capture
