// A trace as what a package keeps of it, and a recording from what a package has kept.
//
//   {"text": str,                        the document (guard/document.h)
//    "consts": [object],                 what its constants stand for
//    "tensors": [(type, integers, sizes, strides)],   by metadata number (torchapi/tensor_desc.h)
//    "states": [words],                  of the global state
//    "levels": bytes, "breaks": [(code, arguments, place, stack)],
//    "entry": (arguments, keywords, recursion, start, first block, gradients first, rest),
//    "bound": text,                      why the trace means nothing to another process; "": it does
//    "sides": [(guard, dict)]}           its side traces, the same way
//
// Idea: everything but `consts` is plain data. kintsugi._package_objects finds the objects again in the other
// process and decides whether they are the same. Nothing that comes back is trusted: the verifiers check the
// text, package_checks.h the kinds of constants and the tables beside them.
//
// New references, GIL. No state.
#pragma once

#include <optional>
#include <string>

#include "pyapi/ref.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

// Null: an exception is pending.
pyapi::Ref<> packageData(const runtime::CompiledTrace& trace);

// What traces hold of ours and no module has, by names: functions, and descriptors of names. Null: as above.
pyapi::Ref<> packageRoots();

// Nothing: `problem` says why. No exception is pending. `function`: what the trace is of, for the names of
// its arguments.
std::optional<recording::Recording> recordingOf(PyObject* data, PyObject* function, std::string& problem);

}  // namespace kintsugi::driver
