// What a functools.lru_cache() wrapper of C code has kept.
//
// A hit runs no Python code and gives the object that the wrapper's dict holds under a key made of the
// arguments. So a hit can be read like an entry of any dict: of an unbounded cache the entry is the result,
// of a bounded one a link with the result in a field. Where these things lie in the objects is private to
// CPython: it is measured once, on wrappers made for that, and where it is not found all answers are null.
//
// Everything is borrowed unless it is a Ref; descriptors are kept for good. Threads: the GIL is needed. No
// function leaves an exception pending or runs code of the program's. Example:
//   PyObject* cache = cacheOf(wrapper);
//   Ref<> key = cacheKey(wrapper, arguments, 2, nullptr);
//   PyDict_GetItem(cache, key.get())  // null: a miss
#pragma once

#include <span>

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// The dict of a wrapper; null: its layout is not known, or it keeps nothing (maxsize=0).
PyObject* cacheOf(PyObject* wrapper);

// The key of a call: `values` are the positional arguments and those of the keywords `names` (a tuple, or
// null). Null: hashing it could run Python code.
Ref<> cacheKey(PyObject* wrapper, std::span<PyObject* const> values, PyObject* names);

// Is the entry of a cache a link of a bounded one?
bool isCacheLink(PyObject* entry);
// The member descriptor that reads the result of such a link; null where the layout is not known.
PyObject* linkResultField();

// The result in an entry of a cache.
PyObject* resultOfEntry(PyObject* entry);

}  // namespace kintsugi::pyapi
