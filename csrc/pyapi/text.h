// Texts of the program for messages and records. Names of files need not be UTF-8: Python keeps the bytes
// that are none as lone surrogates, which can't be encoded.
//
// Threads: the GIL is needed. Never fails, and leaves a pending exception as it is.
#pragma once

#include <Python.h>

namespace kintsugi::pyapi {

// As UTF-8; what can't be encoded stands as "\udce9". Lives as long as `text`, or as the process.
const char* utf8(PyObject* text);

}  // namespace kintsugi::pyapi
