// CPython's internal headers, included the one way that compiles as C++20.
//
// Only pyapi/ may include this file (and, through pyapi/, the opcode handlers that need a struct's layout):
// what the rest of the project needs from CPython's internals is a function of ours in pyapi/.
// pycore_atomic.h includes <stdatomic.h> when HAVE_STD_ATOMIC is defined, which C++20 cannot compile together
// with <atomic>; without the macro it uses the compiler's __atomic built-ins, with the same layout.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "kintsugi supports CPython 3.11"
#endif

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
#include <internal/pycore_opcode.h>
#include <internal/pycore_pyerrors.h>
#include <internal/pycore_pystate.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_tuple.h>
#undef Py_BUILD_CORE
#include <opcode.h>
