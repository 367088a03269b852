// Inside torchapi only: the node behind a symbolic number of the trace, and finding it in arguments.
//
// Ownership: intrusive, shared with torch. Threads: as torch's SymNodes; guards are asked with the GIL.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymNodeImpl.h>

#include <optional>

#include "torchapi/sym_number.h"

namespace kintsugi::torchapi {

// The value of the trace that a symbolic argument stands for; nothing for other arguments.
std::optional<ir::ValueId> traceValueOf(const c10::IValue& number);
// The same for a tensor that a binding has made of a symbolic number. Takes the GIL.
std::optional<ir::ValueId> traceValueOf(const at::Tensor& wrapped);
// The number of an argument that hides it from bindings (TraceNumber::hidden).
std::optional<int64_t> hiddenConstantOf(const c10::IValue& number);

// Replaces symbolic numbers of the trace in the argument by the numbers themselves, as kernels need them.
void makeConcrete(c10::IValue& argument);

}  // namespace kintsugi::torchapi
