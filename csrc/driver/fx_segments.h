// Backends that take torch.fx graphs: each segment of a trace is described to Python, compiled there, and run
// through what comes back. The format of a description is in python/kintsugi/backends/fx.py.
//
// Idea: a segment is compiled when its inputs are at hand. Those that start from the call's own arguments, in
// the state that the call began in, are compiled when the trace is installed; the others when they run for
// the first time, with real inputs and in the grad and autocast mode that they will always run in.
//
// Ownership: the runners belong to the trace. Threads: GIL. Invalidation: with the trace.
#pragma once

#include "passes/segments.h"
#include "pyapi/arguments.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

// What the dispatcher knows about an operator.
passes::OperatorTraits operatorTraits(std::string_view name);

// What every recording goes through before it is made a CompiledTrace: the passes over traces, by a
// PassManager, which verifies the document before and after each where verification is on.
struct TracePasses {
  bool segments = false;  // cut into segments, from instruction `start` on
  bool native = false;    // the segments are for native code
  ir::GradientLimits gradients = {};
};
// Returns where the trace's own part begins in the result; it began at instruction `start`.
uint32_t runTracePasses(guard::Document& document, uint32_t start, TracePasses wanted);

// Descriptions of all segments of a trace, as a list, without examples of their inputs; null: an exception is
// pending. For reports: the trace may have been made without segments.
pyapi::Ref<> describeSegments(const runtime::CompiledTrace& trace);

// Has the backend import what it needs, before anything is recorded: modules register classes with ABCs, and
// a trace that rests on the answers of ABCs would be out of date by then.
void prepareBackend(PyObject* backend);

// Gives each segment of `trace`, which is not shared yet, a runner that uses `backend` (called with a
// description, returns a callable). `args`: of the call that was recorded; null for a side trace. False: the
// backend failed, its exception is pending. `name`: what the user calls the callable, for the names of
// graphs; empty: the function's is used.
bool attachBackend(runtime::CompiledTrace& trace, PyObject* backend, const pyapi::Arguments* args,
                   const std::string& name);

// How many graphs the backend was given for a trace and its side traces.
size_t countGraphs(runtime::CompiledTrace& trace);

}  // namespace kintsugi::driver
