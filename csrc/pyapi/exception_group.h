// The semantics of `except*` (PEP 654) that CPython keeps in functions it does not export.
//
// Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// How an `except*` clause divides an exception: both None when there is nothing left to match, `match` None
// when nothing matches. An empty `match` means that an exception is pending.
struct GroupMatch {
  Ref<> match;
  Ref<> rest;
};
GroupMatch matchGroup(PyObject* exception, PyObject* type);

// What a `try` with except* clauses raises in the end, out of the exception it caught and the list of what
// its clauses raised and left over: a new reference, None for nothing, null with an exception pending.
PyObject* prepareReraiseStar(PyObject* original, PyObject* raised);

}  // namespace kintsugi::pyapi
