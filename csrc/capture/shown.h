// What C code tells of an object that is pinned by its identity: the names of functions and classes, which
// can be set, and what may be folded into a constant at all.
//
// Functions of the recording under way; GIL held.
#pragma once

#include <optional>
#include <string_view>

#include "capture/record_context.h"

namespace kintsugi::capture {

// `__name__` or `__qualname__` of an old function or class, guarded when it is used; nothing: it can't
// change, or is another attribute.
std::optional<Shadow> shownName(RecordContext& rec, Shadow shadow, PyObject* object,
                                std::string_view attribute);
// An attribute of an old object is set: what it is called is asked anew from here on, by a step.
void noteRename(RecordContext& rec, PyObject* object, PyObject* attribute);
bool isRenamed(RecordContext& rec, PyObject* object);
// The object's text holds its names: they are guarded. False: the trace has set them.
bool guardNames(RecordContext& rec, PyObject* object);
// Is all that C code can read of the object pinned with it? An object that is pinned by its identity alone
// may have another state in the next call, and a class or a module other attributes (`attributes`: they are
// read).
bool canFold(RecordContext& rec, Shadow shadow, PyObject* object, bool attributes = false);

}  // namespace kintsugi::capture
