// Reads and writes of class attributes that the program sets while it runs.
//
// Guards on classes compare versions, and each write gives the class a new version: a trace that counts its
// calls in a class would never fit again. So such attributes are *open*: guards on classes leave the entry
// out (guard kind `openattr`), and each look-up of the name reads it from the dicts of the classes, as a
// source that is guarded like any other. Whether a name is open is decided before it is first looked up in a
// recording, from what earlier recordings have written and from what the code at hand stores. If a name was
// looked up as closed and is written later, the next recording opens it.
//
// Functions of the recording under way; GIL held.
#pragma once

#include <optional>

#include "capture/record_context.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

// True if the attribute can be open at all.
bool mayOpen(PyTypeObject* type, PyObject* name);

// Like pyapi::lookUpInType(), with guards; the caller has guarded the type's version. An open descriptor is
// pinned. Only classes behind `after` in the type's MRO are searched, if it is given.
TypeEntry typeEntry(RecordContext& rec, PyTypeObject* type, PyObject* name, PyTypeObject* after = nullptr);
// For a read of the whole dict of the class, guarded by its version. Closes all of its attributes for this
// recording. False if some are open or have been written.
bool closeAll(RecordContext& rec, PyTypeObject* type);
// `class.name = value`, or `del class.name` if `real` is null. Nothing: it is not such a write. False: the
// recording has ended.
std::optional<bool> storeOpen(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                              Shadow value, PyObject* real);
// A modelled step is about to write to an attribute of the class, so the attribute is opened.
void opensAttribute(RecordContext& rec, PyTypeObject* type, const char* name);
// At the end: writes the rows of the document that say which attributes are open.
void describeOpen(RecordContext& rec);

}  // namespace kintsugi::capture
