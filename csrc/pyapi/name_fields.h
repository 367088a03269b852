// Where functions and classes keep what they are called.
//
// Their `__name__` and `__qualname__` are set without a new version of a class and without a word in any
// dict. The field itself can be read and compared, as a slot of an object is.
//
// Threads: the GIL is needed. Example: readDescriptor(nameField(f, "__name__"), f) is f.__name__.
#pragma once

#include <Python.h>

#include <array>
#include <string_view>

namespace kintsugi::pyapi {

// A member descriptor, borrowed and kept for good, for `__name__` or `__qualname__` of a Python function or
// of a class that can be renamed; null: the object is neither, or the attribute is another.
PyObject* nameField(PyObject* object, std::string_view attribute);

// All of these descriptors, borrowed, with texts that distinguish them. A null one: an exception is pending.
struct NamedField {
  const char* text;
  PyObject* descriptor;
};
std::array<NamedField, 4> nameFields();

}  // namespace kintsugi::pyapi
