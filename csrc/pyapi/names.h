// Names that CPython's evaluator looks up itself, as its own interned strings.
//
//   with x: ...      looks up names::enter() and names::exit() in the type of x
//
// Ownership: borrowed, immortal. Threads: any; comparing them by identity needs no GIL.
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi::names {

inline PyObject* spec() { return &_Py_ID(__spec__); }
inline PyObject* all() { return &_Py_ID(__all__); }
inline PyObject* dict() { return &_Py_ID(__dict__); }
inline PyObject* name() { return &_Py_ID(__name__); }
inline PyObject* annotations() { return &_Py_ID(__annotations__); }
inline PyObject* enter() { return &_Py_ID(__enter__); }
inline PyObject* exit() { return &_Py_ID(__exit__); }
inline PyObject* asyncEnter() { return &_Py_ID(__aenter__); }
inline PyObject* asyncExit() { return &_Py_ID(__aexit__); }
inline PyObject* buildClass() { return &_Py_ID(__build_class__); }
inline PyObject* get() { return &_Py_ID(get); }

}  // namespace kintsugi::pyapi::names
