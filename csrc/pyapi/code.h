// Code objects: their variables, names and constants, the extra slot.
//
//   def f(x): return math.sqrt(x)
//   variableName(code, 0): "x"; nameAt(code, 0): "math"; nameAt(code, 1): "sqrt"
//
// Code objects are immutable here; whatever is stored in an extra slot is freed by CPython with the code
// object. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"
#include "support/check.h"

namespace kintsugi::pyapi {

// Requests a slot for data of ours in each code object. `free` is called with the data when the code object
// dies. Negative: no slot is free.
Py_ssize_t requestCodeExtra(void (*free)(void*));
// Stores it in the slot. False: an exception is pending.
bool setCodeExtra(PyCodeObject* code, Py_ssize_t index, void* extra);
// What was stored in the slot, or null. Reads CPython's private struct: this is on the path of
// each call.
inline void* codeExtra(const PyCodeObject* code, Py_ssize_t index) {
  struct Extra {
    Py_ssize_t size;
    void* items[1];
  };
  const auto* extra = static_cast<const Extra*>(code->co_extra);
  return extra != nullptr && index >= 0 && index < extra->size ? extra->items[index] : nullptr;
}

using CodeUnit = _Py_CODEUNIT;
inline CodeUnit* codeUnits(const PyCodeObject* code) { return _PyCode_CODE(const_cast<PyCodeObject*>(code)); }
inline int32_t codeUnitCount(const PyCodeObject* code) { return static_cast<int32_t>(Py_SIZE(code)); }

// Names and places; borrowed.
inline PyObject* fileOf(const PyCodeObject* code) { return code->co_filename; }
inline PyObject* nameOf(const PyCodeObject* code) { return code->co_name; }
inline PyObject* qualifiedNameOf(const PyCodeObject* code) { return code->co_qualname; }
inline int firstLineOf(const PyCodeObject* code) { return code->co_firstlineno; }

// The names and constants that instructions refer to by an index; borrowed.
inline PyObject* namesOf(const PyCodeObject* code) { return code->co_names; }
inline PyObject* nameAt(const PyCodeObject* code, uint32_t index) {
  KINTSUGI_DCHECK(index < static_cast<size_t>(PyTuple_GET_SIZE(code->co_names)), "name ", index);
  return PyTuple_GET_ITEM(code->co_names, index);
}
inline PyObject* constantsOf(const PyCodeObject* code) { return code->co_consts; }
inline PyObject* constantAt(const PyCodeObject* code, uint32_t index) {
  KINTSUGI_DCHECK(index < static_cast<size_t>(PyTuple_GET_SIZE(code->co_consts)), "constant ", index);
  return PyTuple_GET_ITEM(code->co_consts, index);
}

inline int flagsOf(const PyCodeObject* code) { return code->co_flags; }  // CO_GENERATOR and its like
inline bool isGeneratorCode(const PyCodeObject* code) {
  return (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
}
// True if the code has a `try`, a `with` or anything else that catches exceptions.
inline bool hasHandlers(const PyCodeObject* code) { return PyBytes_GET_SIZE(code->co_exceptiontable) != 0; }

// Parameters are the first variables: positional ones (some may be positional-only), then keyword-only ones,
// then *args and **kwargs.
inline int argumentCount(const PyCodeObject* code) { return code->co_argcount; }
inline int positionalOnlyCount(const PyCodeObject* code) { return code->co_posonlyargcount; }
inline int keywordOnlyCount(const PyCodeObject* code) { return code->co_kwonlyargcount; }
// The names of keyword-only parameters as a new tuple, for a call. Null if there are none, or with an
// exception pending.
PyObject* keywordOnlyNames(const PyCodeObject* code);

// Locals come first, then cells, then free variables: the number of all, and where the free variables begin.
inline int localsPlusCount(const PyCodeObject* code) { return code->co_nlocalsplus; }
inline int freeVariableCount(const PyCodeObject* code) { return code->co_nfreevars; }
inline int firstFreeVariable(const PyCodeObject* code) { return code->co_nlocalsplus - code->co_nfreevars; }
inline int stackCapacity(const PyCodeObject* code) { return code->co_stacksize; }
// The name of a variable by its index in the frame; borrowed.
inline PyObject* variableName(const PyCodeObject* code, uint32_t index) {
  KINTSUGI_DCHECK(index < static_cast<size_t>(PyTuple_GET_SIZE(code->co_localsplusnames)), "variable ",
                  index);
  return PyTuple_GET_ITEM(code->co_localsplusnames, index);
}
inline bool isFreeVariable(const PyCodeObject* code, uint32_t index) {
  return static_cast<int>(index) >= code->co_nlocalsplus - code->co_nfreevars;
}

}  // namespace kintsugi::pyapi
