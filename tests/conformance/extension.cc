// An extension module with nothing but the interpreter's switch, for the conformance runner.
#include <nanobind/nanobind.h>

#include "bindings/interpret.h"

NB_MODULE(_interpreter, m) { kintsugi::bindInterpreter(m); }
