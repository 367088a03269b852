// Inside torchapi only: the node behind a symbolic number of the trace, and finding it in arguments.
//
// Ownership: intrusive, shared with torch. Threads: as torch's SymNodes; guards are asked with the GIL.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymNodeImpl.h>

#include <optional>

#include "torchapi/sym_number.h"

namespace kintsugi::torchapi {

// The value of the trace that an argument is; nothing for everything else.
std::optional<ir::ValueId> traceValueOf(const c10::IValue& number);
// The same for the tensor that a binding made of a symbolic number in a tensor's place. Takes the GIL.
std::optional<ir::ValueId> traceValueOf(const at::Tensor& wrapped);
// The number that an argument is without being told (TraceNumber::veiled).
std::optional<int64_t> veiledOf(const c10::IValue& number);

// The argument as a kernel takes it: every symbolic number of the trace replaced by the number itself.
void makeConcrete(c10::IValue& argument);

}  // namespace kintsugi::torchapi
