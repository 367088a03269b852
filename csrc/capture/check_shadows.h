// Compares what the recorder knows of a frame with the frame itself.
//
// Before each instruction every slot (locals, cells, stack) has a shadow that says what is in it:
//
//  kNull     the slot is empty. On the stack of a frame that handles or re-raises an exception, the slot may
//            hold the exception that is handled outside of the frame, which no snapshot names
//            (PUSH_EXC_INFO puts it there, SWAP and COPY move it, RERAISE drops it).
//  kConst    an object that can't change: plain, a class, function, module, code object, range, descriptor
//            of a C type, enum member, or a tuple or frozen set of such; or an object whose identity is
//            pinned. Such a shadow has no object of its own to compare with: what the frame holds is the
//            constant. What is checked is that it is no tensor, list, dict, set or bytearray that nobody has
//            pinned, and holds none in tuples and frozen sets
//  kSource   the object that the path led to when it was read; if it is plain, one of the same type and value
//  kValue    a number of the value's type; or the tensor that the trace knows under this value, or an input
//            whose source led to it (two inputs that a guard makes one may go by either name)
//  kVirtual  the virtual's object
//
// All of docs/internals/capture.md rests on this. If a slot differed, the next instruction would be recorded
// for another object. Linear in the number of slots; runs where verification is on.
#pragma once

#include <string>

#include "capture/shadow.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/frozen_objects.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/restored_frames.h"
#include "capture/tables/virtual_table.h"
#include "torchapi/call_log.h"

namespace kintsugi::capture {

// The tables that say what a shadow stands for.
struct KnownShadows {
  const ConstantPool& constants;
  const FrozenObjects& frozen;
  const KnownSources& sources;
  const RestoredFrames& restored;
  const VirtualTable& virtuals;
  const ir::Trace& trace;
  const torchapi::TensorIds& tensors;
};

// Describes the first slot that is not what its shadow says; empty if there is none.
std::string shadowProblem(const KnownShadows& known, const ShadowFrame& frame, const Activation& act,
                          const Instr& instr);

}  // namespace kintsugi::capture
