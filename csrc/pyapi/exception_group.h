// The semantics of `except*` (PEP 654) that CPython keeps in functions it does not export.
//
// Threads: the GIL is needed.
#pragma once

#include "pyapi/internal.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

// The result of an `except*` clause. `match` is None if nothing matches; both are None if nothing is left to
// match. An empty `match` means that an exception is pending.
struct GroupMatch {
  Ref<> match;
  Ref<> rest;
};
GroupMatch matchGroup(PyObject* exception, PyObject* type);

// The exception that a `try` with `except*` clauses raises at its end. It is computed from the exception that
// it caught, and from the list of what the clauses raised or left over. A new reference; None for nothing,
// null with an exception pending.
PyObject* prepareReraiseStar(PyObject* original, PyObject* raised);

}  // namespace kintsugi::pyapi
