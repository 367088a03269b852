// Reads and writes of class attributes that the program sets while it runs.
//
// Guards on classes compare versions, and a class has another one after each write: a trace that counts its
// calls in a class would never fit again. So such attributes are *open*: guards on classes leave the entry
// out (guard kind `openattr`), and whoever looks the name up reads it from the dicts of the classes in
// question, as a source that is guarded like any other. It is decided before the name is first looked up in a
// recording, from what earlier recordings have written and from what the code at hand stores; a name that was
// looked up in the other way is opened in the next recording.
//
// Functions of the recording under way; GIL held.
#pragma once

#include <optional>

#include "capture/record_context.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

// Can the attribute be open at all?
bool mayOpen(PyTypeObject* type, PyObject* name);

// What look-up in a class finds.
struct TypeEntry {
  PyObject* value = nullptr;  // borrowed; null: nothing
  bool open = false;          // `shadow` says what it is, and it is no descriptor
  Shadow shadow;
};

// pyapi::lookUpInType() with its guards: the caller has guarded the type's version. What is open and a
// descriptor is pinned. After `after`, a class of the type's order, where one is given.
TypeEntry typeEntry(RecordContext& rec, PyTypeObject* type, PyObject* name, PyTypeObject* after = nullptr);
// The whole dict of the class is read, and left to the guard on its version: none of its attributes becomes
// open in this recording. False: some are, or have been written.
bool closeAll(RecordContext& rec, PyTypeObject* type);
// class.name = value, or `del class.name` where `real` is null. Nothing: not such a write; false: the
// recording has ended.
std::optional<bool> storeOpen(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                              Shadow value, PyObject* real);
// A modelled step is about to write to an attribute of a class.
void opensAttribute(RecordContext& rec, PyTypeObject* type, const char* name);
// At the end: the rows that say which attributes are open.
void describeOpen(RecordContext& rec);

}  // namespace kintsugi::capture
