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

}  // namespace kintsugi::pyapi
