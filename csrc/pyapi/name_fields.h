// The fields in which functions and classes keep their names.
//
// Setting `__name__` or `__qualname__` changes neither a class's version nor a dict. So guards read and
// compare the field itself, like a slot of an object.
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

// All of these descriptors, borrowed, each with a text that identifies it. If one is null, an exception is
// pending.
struct NamedField {
  const char* text;
  PyObject* descriptor;
};
std::array<NamedField, 4> nameFields();

}  // namespace kintsugi::pyapi
