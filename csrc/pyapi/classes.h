// Making a class as a class statement does, without what it calls back: `__set_name__` of the values in the
// namespace and
// `__init_subclass__` of the bases, which a trace has run already (or runs by itself).
//
// Only for the metaclass `type`. Owns nothing; the GIL is needed. Example:
//   Ref<> cls = newClass(name, bases, space); if (!cls) ... an exception is pending
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// `name` a string, `bases` a tuple of classes, `space` a dict: what type(name, bases, space) gets.
Ref<> newClass(PyObject* name, PyObject* bases, PyObject* space);

// The `__set_name__` that type.__new__ calls for a value of the namespace; borrowed, null: none.
PyObject* nameHook(PyObject* value);
// A function of C code that gives a class's version, or a number that no other call gives. Borrowed.
PyObject* classVersion();
// The `__init_subclass__` of a class's bases, as it lies in the dict of one; borrowed, null: that of object,
// which does nothing.
PyObject* subclassHook(PyTypeObject* type);

// dict.keys, int.__add__: as it lies in the dict of a class.
bool isMethodOfC(PyObject* method);

// dict.keys of an OrderedDict: a method of a base that a class in C between it and `type` has another one
// for.
bool isOverriddenInC(PyObject* method, PyTypeObject* type);

// A method of C's that is called without an object of its class: it refuses. `self` may be null.
bool isOfAnotherClass(PyObject* method, PyObject* self);

}  // namespace kintsugi::pyapi
