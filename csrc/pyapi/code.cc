#include "pyapi/code.h"

namespace kintsugi::pyapi {

// CPython's table of this is a C initializer that C++ does not accept.
int cacheCount(uint8_t opcode) {
  switch (opcode) {
    case BINARY_OP:
      return INLINE_CACHE_ENTRIES_BINARY_OP;
    case BINARY_SUBSCR:
      return INLINE_CACHE_ENTRIES_BINARY_SUBSCR;
    case CALL:
      return INLINE_CACHE_ENTRIES_CALL;
    case COMPARE_OP:
      return INLINE_CACHE_ENTRIES_COMPARE_OP;
    case LOAD_ATTR:
      return INLINE_CACHE_ENTRIES_LOAD_ATTR;
    case LOAD_GLOBAL:
      return INLINE_CACHE_ENTRIES_LOAD_GLOBAL;
    case LOAD_METHOD:
      return INLINE_CACHE_ENTRIES_LOAD_METHOD;
    case PRECALL:
      return INLINE_CACHE_ENTRIES_PRECALL;
    case STORE_ATTR:
      return INLINE_CACHE_ENTRIES_STORE_ATTR;
    case STORE_SUBSCR:
      return INLINE_CACHE_ENTRIES_STORE_SUBSCR;
    case UNPACK_SEQUENCE:
      return INLINE_CACHE_ENTRIES_UNPACK_SEQUENCE;
    default:
      return 0;
  }
}

int32_t jumpTarget(PyCodeObject* code, int32_t next) {
  // In this form caches are zero, so that none can be taken for a prefix of the argument.
  PyObject* bytes = PyCode_GetCode(code);
  if (bytes == nullptr) {
    PyErr_Clear();
    return next;
  }
  const auto* units = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes));
  uint32_t argument = units[2 * (next - 1) + 1];
  for (int32_t at = next - 2, shift = 8; at >= 0 && units[2 * at] == EXTENDED_ARG; --at, shift += 8) {
    argument |= static_cast<uint32_t>(units[2 * at + 1]) << shift;
  }
  Py_DECREF(bytes);
  return next + static_cast<int32_t>(argument);
}

}  // namespace kintsugi::pyapi
