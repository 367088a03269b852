// A whole trace as Python data, for kintsugi.export, which makes another program of it.
//
//   {"file", "line", "function",
//    "arguments": 2, "keywords": ("scale",),     how many there were in all, and the names of the last
//    "sources": [(kind, parent, key, index)],    guard/source.h; None where a kind has no such part
//    "paths": [text],                            of the sources, for people
//    "guards": [(kind, source, key)],            of all blocks (guard/guard.h)
//    "constants": [object],
//    "values": [type],                           tensor, int, float, bool, object or none
//    "metas": [(sizes, dtype)],                  -1: a size that varies
//    "recipes": [(kind, type, parts)],           ir/trace.h
//    "snaps": [[(file, line, function, code)]],  the frames of each snapshot, outermost first
//    "code": [(op, target, operands, results, snap, keywords)]}
//
// `op` is as in the trace's text, but "drop" where the program lets an object go (pyapi/drop_reference.h),
// and "attempt" where it handles an exception that a call may raise (capture/attempt.h). `target` is the
// operator of an `aten`; `keywords` are the names of the last operands of a call. Operands are as in
// driver/operand_objects.h. The dict holds the program's objects. GIL. No state.
#pragma once

#include "pyapi/ref.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::driver {

// Null: an exception is pending.
pyapi::Ref<> traceData(const runtime::CompiledTrace& trace);

}  // namespace kintsugi::driver
