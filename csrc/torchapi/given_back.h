// Inside torchapi only: which tensors of a log an operator has given back as they are.
//
// `flatten()` of one dimension is the tensor itself, and of two it is another one. A trace that takes the
// result for the argument is right only where this is so in each run, so it has to be guarded what the
// operator looks at.
//
// Ownership: borrows log and table for one call. Threads: the recording one. GIL: not needed. Example: for
// `y.flatten()`, where y's rank is known only at run time, the answer is {y's value, kRank, y's metadata}.
#pragma once

#include <span>

#include "torchapi/op_log.h"
#include "torchapi/op_recorder.h"
#include "torchapi/tensor_table.h"

namespace kintsugi::torchapi {

// True if sizes of a result may depend on a number of the trace.
bool hasTraceNumber(const c10::IValue& value);
GivenBack findGivenBack(OpLog& log, const TensorTable& table);
// True if a call that has made a new tensor gives its argument back where sizes or strides are others.
bool mayGiveBack(const OpSchema& schema, std::span<const ir::Operand> operands);
// The same for instructions of a trace that is continued: notes their results in the table.
void noteMaybeArguments(const ir::Trace& trace, TensorTable& table);

}  // namespace kintsugi::torchapi
