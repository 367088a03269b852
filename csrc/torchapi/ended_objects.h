// What follows when a write of a trace ends what was there before.
//
// A write may end an object of the program, and code of the program runs then which may change what the trace
// has read and takes as known behind the write. So this is looked at before the write is done, by the
// recorder and in each run. The GIL is needed; no code of the program runs. Example:
//
//   if (endOfReplaced(ir::Op::kSetAttr, object, name) == pyapi::End::kRuns) return leave();
#pragma once

#include "ir/trace.h"
#include "pyapi/replaced.h"

namespace kintsugi::torchapi {

// `key`: the attribute's name, the key of an item, or unused. `op`: an effect. `own`, `ending`: see
// pyapi/replaced.h.
pyapi::End endOfReplaced(ir::Op op, PyObject* target, PyObject* key, const pyapi::OwnReferences& own = {},
                         std::vector<PyObject*>* ending = nullptr);

}  // namespace kintsugi::torchapi
