// Tells which folder has what differs between CPython's versions. This is the only place that asks for the
// version.
//
// A version is a folder of files with the same names and the same declarations: frame.h (frames and the
// thread's chain of them), objects.h (instances, classes, ints), opcodes.def, meaning.cc, eval_breaker.cc and
// intrinsics.cc. The build compiles the sources in the folder of its Python, and in those of the folders
// since*/ and until*/ that apply to it.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define KINTSUGI_VERSION_FRAME "pyapi/v311/frame.h"
#define KINTSUGI_VERSION_OBJECTS "pyapi/v311/objects.h"
#define KINTSUGI_VERSION_OPCODES "pyapi/v311/opcodes.def"
#elif PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
#define KINTSUGI_VERSION_FRAME "pyapi/v312/frame.h"
#define KINTSUGI_VERSION_OBJECTS "pyapi/v312/objects.h"
#define KINTSUGI_VERSION_OPCODES "pyapi/v312/opcodes.def"
#elif PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
#define KINTSUGI_VERSION_FRAME "pyapi/v313/frame.h"
#define KINTSUGI_VERSION_OBJECTS "pyapi/v313/objects.h"
#define KINTSUGI_VERSION_OPCODES "pyapi/v313/opcodes.def"
#elif PY_VERSION_HEX >= 0x030E0000 && PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED)
#define KINTSUGI_VERSION_FRAME "pyapi/v314/frame.h"
#define KINTSUGI_VERSION_OBJECTS "pyapi/v314/objects.h"
#define KINTSUGI_VERSION_OPCODES "pyapi/v314/opcodes.def"
#else
#error "csrc/pyapi/ has folders for CPython 3.11 to 3.14, with the global interpreter lock"
#endif
