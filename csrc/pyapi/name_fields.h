// The fields in which functions and classes keep their names, and functions their module and documentation.
//
// Setting `__name__` or `__qualname__` changes neither a class's version nor a dict. So guards read and
// compare the field itself, like a slot of an object. `__module__` and `__doc__` of functions are members of
// the type up to CPython 3.13 and getters from 3.14 on, which do no more than the members did.
//
// Threads: the GIL is needed. Example: readDescriptor(nameField(f, "__name__"), f) is f.__name__.
#pragma once

#include <Python.h>

#include <array>
#include <string_view>

namespace kintsugi::pyapi {

// A member descriptor for `__name__` or `__qualname__` of a Python function, or of a class that can be
// renamed; borrowed, never freed. Null: the object is neither, or it is another attribute.
PyObject* nameField(PyObject* object, std::string_view attribute);

// The member descriptor that does what this getter and setter of functions does, where it only reads and
// writes a field; else the descriptor itself. Borrowed.
PyObject* fieldBehind(PyObject* descriptor);

// All of these descriptors, borrowed, each with a text that identifies it. If one is null, an exception is
// pending.
struct NamedField {
  const char* text;
  PyObject* descriptor;
};
std::array<NamedField, 6> nameFields();

}  // namespace kintsugi::pyapi
