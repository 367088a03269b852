// Makes a class as a class statement does, but without its callbacks: `__set_name__` of the values in the
// namespace, and `__init_subclass__` of the bases. A trace runs these itself, or has run them already.
//
// Only for the metaclass `type`. Owns nothing; the GIL is needed. Example:
//   Ref<> cls = newClass(name, bases, space); if (!cls) ... an exception is pending
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// `name` is a string, `bases` a tuple of classes, `space` a dict: the arguments of type(name, bases, space).
Ref<> newClass(PyObject* name, PyObject* bases, PyObject* space);

// The `__set_name__` that type.__new__ calls for a value of the namespace; borrowed, null: none.
PyObject* nameHook(PyObject* value);
// A C function that returns a class's version, or, if it has none, a number that no other call returns.
// Borrowed.
PyObject* classVersion();
// The `__init_subclass__` of a class's bases, as it is in the dict of one of them; borrowed. Null: it is
// object's, which does nothing.
PyObject* subclassHook(PyTypeObject* type);

// True for methods such as dict.keys and int.__add__, as they are in the dict of a class.
bool isMethodOfC(PyObject* method);

// True if a C class between the method's class and `type` overrides the method, as OrderedDict overrides
// dict.keys.
bool isOverriddenInC(PyObject* method, PyTypeObject* type);

// True if a C method is called without an object of its class, which it refuses. `self` may be null.
bool isOfAnotherClass(PyObject* method, PyObject* self);

}  // namespace kintsugi::pyapi
