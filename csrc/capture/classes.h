// Classes that the trace makes: class statements and type(name, bases, dict) (calls/classes.cc).
//
// Idea: such a class is a virtual object like any other: nothing of it is guarded, what is found in it has
// the shadows of its namespace, and it is built only where it escapes. Virtual::parts are the shadows of the
// bases and of the cell
// `__class__` (null: there is none); partObjects the same, the dict that was the namespace, with what was set
// since, and the code of the class body (null: there was none); `index` says how many entries it was made
// with. Objects of the trace are found by identity: a shadow that calls such a class, or a function in it, a
// constant is one of its own (`own`), and such an object never becomes a constant of the trace (`refuseOwn`).
// What can't be captured with the class as a virtual object ends the recording, and the class statement is
// one step the next time.
//
// Lives in the recorder's tables; the recording thread, GIL held.
#pragma once

#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

// The virtual object where a constant turns out to have been made in this trace.
Shadow own(RecordContext& rec, Shadow shadow, PyObject* object);
// What the namespace of a class made here says about `value`, which `name` is in the class or one of its
// bases.
std::optional<Shadow> ownAttribute(RecordContext& rec, PyTypeObject* type, PyObject* name, PyObject* value);
// The same of just this class; null: it is no class of the trace.
Virtual* ownClass(RecordContext& rec, PyTypeObject* type);
// Makes the trace depend on which class it is (or which classes: a tuple). False: the recording has ended.
bool pinClasses(RecordContext& rec, Shadow& shadow, PyObject* object);
// Instead of a guard on the version of a type: its old bases are guarded. False: it is no class of the trace.
bool guardOwnClass(RecordContext& rec, PyTypeObject* type);
// Asks for the version of a class that has just been built or changed; what an opaque step does to it shows
// then.
void noteVersion(RecordContext& rec, Virtual& cls);
// Ends the recording where a class of the trace, or a function while there are such, would be a constant.
void refuseOwn(RecordContext& rec, PyObject* object);
// Ends the recording: its newest class statement is a step the next time.
void refuseClass(RecordContext& rec, const char* what);
// The code of the newest class statement of the trace, or null.
PyObject* newestClassBody(RecordContext& rec);
// class.name = value. Nothing: it is no class of the trace; false: the recording has ended.
std::optional<bool> storeInClass(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                                 Shadow value, PyObject* real);
// The class that a cell `__class__` belongs to; null: it is another cell.
Virtual* classOfCell(RecordContext& rec, Shadow cell);

}  // namespace kintsugi::capture
