// What the recorder believes about a frame, compared with the frame.
//
// Before an instruction each slot (locals, cells, stack) has a shadow that says what is in it. The rule of
// each kind:
//
//   kNull     the slot is empty; on the stack of a frame that handles an exception, or raises it again, it
//   may
//             hold what is handled outside of the frame, which no snapshot names (PUSH_EXC_INFO puts it
//             there, SWAP and COPY move it, RERAISE drops it)
//   kConst    an object that can't change: plain, a class, function, module, code object, range, descriptor
//   of a
//             C type, a member of an enum, a tuple of such; or one whose identity the trace has pinned
//   kSource   the object that the path led to when it was read
//   kValue    a tensor: the one that the trace knows under this value, or an input whose source led to it
//   (two
//             inputs that a guard makes one go by one name); a number: of the value's type
//   kVirtual  the virtual's object
//
// The rest of docs/internals/capture.md is built on this; a slot that differs would be read as something else
// by the next instruction. Linear in the number of slots; runs where verification is on.
#pragma once

#include <string>

#include "capture/record_context.h"

namespace kintsugi::capture {

// The first slot that is not what its shadow says; empty: none.
std::string shadowProblem(RecordContext& recorder, const ShadowFrame& frame, const Activation& act,
                          const Instr& instr);

}  // namespace kintsugi::capture
