// Does a native program (passes/fuse.h) do what its tensor graph says, in an order that works?
//
//   steps    Each kernel is run by one step. Calls and views are nodes of that kind, each once. No call is
//            left out.
//   kernels  They are well formed (Kernel::checkForm()). Each stores nodes of the graph that kernels compute,
//            and no node is stored twice.
//   order    A step reads inputs, constants and results of earlier steps. A concatenation is complete when
//            all of its parts are; a kernel may read a part before that.
//   writes   Steps that write to inputs come after all steps that can be undone.
//
// Example of a program that is not valid, since the kernel reads y before any step has made it:
//
//   kernel: a of y
//   call:   y of x
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
