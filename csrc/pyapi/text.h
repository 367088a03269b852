// Strings of the program for messages and records. Names of files need not be UTF-8: Python represents
// invalid bytes by lone surrogates, which can't be encoded.
//
//   utf8(name): a file name with the byte e9 shows it as a backslash and the letters udce9
//
// Threads: the GIL is needed. Never fails, and leaves a pending exception as it is.
#pragma once

#include <Python.h>

namespace kintsugi::pyapi {

// As UTF-8; what can't be encoded appears as "\udce9". Valid as long as `text`, or for the life of the
// process.
const char* utf8(PyObject* text);

}  // namespace kintsugi::pyapi
