// Reads the cache of a functools.lru_cache() wrapper in C.
//
// A hit runs no Python code: it returns the object that the wrapper's dict has under a key made of the
// arguments. So a hit can be read like an entry of any dict. In an unbounded cache the entry is the result;
// in a bounded one it is a link with the result in a field. The layout of these objects is private to
// CPython. It is measured once, on wrappers made for this. If the measuring fails, all answers are null.
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

// What the dict of a wrapper has under a key; null: nothing, or hashing the key could run Python code.
PyObject* entryOf(PyObject* cache, PyObject* key);

// Does the cache hold as many results as it may, so that a miss drops one?
bool isFull(PyObject* wrapper);
// Takes down that a call of this key has missed. False: one had missed before. It keeps hashes alone, of some
// thousand misses; a wrong "false" is possible.
bool noteMiss(PyObject* wrapper, PyObject* key);

// The function has_call(wrapper, names, *values): would the call be a hit? `names`: as above, or None. It
// runs no Python code: where hashing the key could, it says False.
PyObject* cacheHasCall();

// True if the entry is a link of a bounded cache.
bool isCacheLink(PyObject* entry);
// The member descriptor that reads the result of a link; null if the layout is not known.
PyObject* linkResultField();

// The result in an entry of a cache.
PyObject* resultOfEntry(PyObject* entry);

}  // namespace kintsugi::pyapi
