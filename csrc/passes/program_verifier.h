// Does a native program (passes/fuse.h) do what its tensor graph says, in an order that works?
//
//   steps    each kernel is run by one step; calls and views are nodes of that kind, each once; no call is
//            left out
//   kernels  are well formed (Kernel::checkForm()), and store nodes of the graph that kernels compute, each
//   once order    what a step reads is there: an input, a constant, or made by a step before it; a
//   concatenation
//            is there when all of its parts are, but a kernel may read a part
//   writes   what is stored to inputs comes behind all steps that can be undone
//
//   call: y of x                  not valid: the kernel reads y, which no step has made yet
//   kernel: a of y                (where the two come the other way round)
//
// Linear in what steps read. No state, no GIL.
#pragma once

#include <vector>

#include "ir/verifier.h"
#include "passes/fuse.h"

namespace kintsugi::passes {

// Empty: the program is valid.
std::vector<ir::Problem> verify(const NativeProgram& program, const TensorGraph& graph);

// Where verification is on: a program that is not valid is a failed check.
void checkProgram(const NativeProgram& program, const TensorGraph& graph, const ir::Trace& trace);

}  // namespace kintsugi::passes
