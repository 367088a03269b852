// Classes that the trace makes: class statements and type(name, bases, dict) (calls/classes.cc).
//
// Such a class is a virtual object like any other: it is not guarded, attributes found in it have the shadows
// of its namespace, and it is built only where it escapes. Its Virtual has these fields:
//  parts        shadows of the bases, and of the cell `__class__` (null: there is none)
//  partObjects  the same objects; then the namespace dict, with what was set since; then the code of the
//               class body (null: there was none)
//  index        the number of entries that the class was made with
//
// A constant shadow may stand for such a class or a function in it. Objects of the trace are found by
// identity: `virtualShadowOf` gives the virtual shadow, and `refuseVirtualConstant` keeps such an object from
// becoming a constant of the trace. If the class can't be captured as a virtual object, the recording ends,
// and the class statement is one step the next time.
//
// Lives in the recorder's tables; the recording thread, GIL held.
#pragma once

#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

// The virtual shadow of a constant that turns out to be an object of this trace; else the shadow itself.
Shadow virtualShadowOf(RecordContext& rec, Shadow shadow, PyObject* object);
// For a value that was looked up as `name` in a class or its bases: the shadow in the namespace of the class
// that has it, if the trace has made that class.
std::optional<Shadow> virtualClassAttribute(RecordContext& rec, PyTypeObject* type, PyObject* name,
                                            PyObject* value);
// The virtual object of a class of the trace; null if it is another class.
Virtual* virtualClassOf(RecordContext& rec, PyTypeObject* type);
// Makes the trace depend on which class this is (or classes: a tuple). False: the recording has ended.
bool pinClasses(RecordContext& rec, Shadow& shadow, PyObject* object);
// Makes the trace depend on the answer of isinstance(object, classes), of pinned classes. False: code of the
// program decides about it (calls/class_checks.cc).
bool guardInstanceCheck(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* classes);
// For a class of the trace, guards its older bases instead of its version. False: it is no class of the
// trace.
bool guardBasesOfVirtual(RecordContext& rec, PyTypeObject* type);
// Ends the recording if a class of the trace, or a function while there are such classes, is to be a
// constant.
void refuseVirtualConstant(RecordContext& rec, PyObject* object);
// The instance that a constructor has made. Unknown code that it was handed to may have changed it by then.
Shadow madeInstance(RecordContext& rec, PyObject* object);
// Ends the recording. The newest class statement is a step the next time.
void refuseClass(RecordContext& rec, const char* what);
// `class.name = value`. Nothing: it is no class of the trace. False: the recording has ended.
std::optional<bool> storeInClass(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                                 Shadow value, PyObject* real);

}  // namespace kintsugi::capture
