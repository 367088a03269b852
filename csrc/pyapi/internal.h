// CPython's internal headers (pycore_frame.h and the like), included the one way that compiles as C++20.
//
// Only pyapi/ includes this file. Headers of pyapi/ pass it on, but no other layer may use names from it
// (scripts/check_layers.py): what the project needs of CPython's internals is a function of ours.
// pycore_atomic.h includes <stdatomic.h> if HAVE_STD_ATOMIC is defined, and C++20 cannot compile that
// together with <atomic>. Without the macro it uses the compiler's __atomic built-ins, with the same layout.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include "pyapi/version.h"

// Python.h may have been included before without Py_BUILD_CORE: its compatibility macros clash with pycore_*.
#undef HAVE_STD_ATOMIC
#undef _PyObject_LookupSpecial
#undef _PyGC_FINALIZED
#define Py_BUILD_CORE 1
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_function.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_object.h>
#include <internal/pycore_pyerrors.h>
#include <internal/pycore_pystate.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_tuple.h>
#undef Py_BUILD_CORE
