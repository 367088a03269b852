// The arguments of one call, as vectorcall hands them over: positional ones first, then the keywords' values
// in the order of their names.
//
// Calls of the same function differ in how many arguments they bring, so an index that comes from elsewhere
// (a recording, a guard) says nothing about this call: `at()` is the only reader by index, and is checked.
//
// Ownership: borrows all; the caller holds the arguments for the duration of the call.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "pyapi/plain.h"

namespace kintsugi::pyapi {

class Arguments {
 public:
  Arguments() = default;
  // `kwnames`: a tuple of names, or null.
  Arguments(PyObject* const* data, size_t positional, PyObject* kwnames)
      : data_(data), positional_(positional), kwnames_(kwnames), total_(positional + countOf(kwnames)) {}

  // Null if this call has no such argument.
  PyObject* at(int64_t index) const {
    return static_cast<uint64_t>(index) < total_ ? data_[static_cast<size_t>(index)] : nullptr;
  }
  size_t positional() const { return positional_; }
  size_t keywords() const { return total_ - positional_; }
  size_t total() const { return total_; }
  PyObject* kwnames() const { return kwnames_; }

  // True if a call of this shape has as many positional arguments, and the same keywords in the same order.
  bool hasShape(size_t positional, PyObject* kwnames) const {
    if (positional_ != positional || keywords() != countOf(kwnames)) return false;
    if (kwnames_ == kwnames) return true;
    for (size_t i = 0; i < keywords(); ++i) {
      const auto at = static_cast<Py_ssize_t>(i);
      if (!plainEquals(PyTuple_GET_ITEM(kwnames, at), PyTuple_GET_ITEM(kwnames_, at))) return false;
    }
    return true;
  }

  // Calls `function` with them. A new reference, or null with an exception pending.
  PyObject* call(PyObject* function) const {
    return PyObject_Vectorcall(function, data_, positional_, kwnames_);
  }
  // The same for a Python function, whatever its vectorcall slot was set to.
  PyObject* callFunction(PyObject* function) const;

 private:
  static size_t countOf(PyObject* kwnames) {
    return kwnames == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(kwnames));
  }

  PyObject* const* data_ = nullptr;
  size_t positional_ = 0;
  PyObject* kwnames_ = nullptr;
  size_t total_ = 0;
};

}  // namespace kintsugi::pyapi
