// Code objects: inline cache sizes, the extra slot, names of variables.
//
// Code objects are immutable here; whatever is stored in an extra slot is freed by CPython with the code
// object. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// How many inline cache units follow an instruction.
int cacheCount(uint8_t opcode);

// What _PyCode_SetExtra() stored at `index`, or null. Reads CPython's private struct: this is on the path of
// each call.
inline void* codeExtra(const PyCodeObject* code, Py_ssize_t index) {
  struct Extra {
    Py_ssize_t size;
    void* items[1];
  };
  const auto* extra = static_cast<const Extra*>(code->co_extra);
  return extra != nullptr && index >= 0 && index < extra->size ? extra->items[index] : nullptr;
}

// Where the jump goes that ends right before code unit `next` (FOR_ITER, SEND).
int32_t jumpTarget(PyCodeObject* code, int32_t next);

// The name of a local, cell or free variable by its index in the frame; borrowed.
inline PyObject* variableName(const PyCodeObject* code, uint32_t index) {
  return PyTuple_GET_ITEM(code->co_localsplusnames, index);
}
inline bool isFreeVariable(const PyCodeObject* code, uint32_t index) {
  return static_cast<int>(index) >= code->co_nlocalsplus - code->co_nfreevars;
}

}  // namespace kintsugi::pyapi
