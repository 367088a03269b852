// Fusion: groups the core operations of a tensor graph into kernels, and puts all in an order to run in.
//
// Idea: nodes are taken in order. A node joins the groups of its arguments, and makes them one, where all run
// over the same elements (a reduction and what is made of it run over rows) and where everything else that
// they need can be there before. The latter is told by levels: a group's level is above those of all that it
// takes from outside, so groups never wait for each other in a circle. A group may be moved to a higher level
// as long as nothing at or below it has taken what the group makes. A group stores what others need; the rest
// stays in registers. Nearly linear in the size of the graph. No GIL.
#pragma once

#include "passes/kernel.h"

namespace kintsugi::passes {

enum class StepKind : uint8_t { kKernel, kCall, kView };

struct NativeStep {
  StepKind kind = StepKind::kKernel;
  uint32_t kernel = 0;      // kKernel: into NativeProgram::kernels
  NodeId node = ir::kNone;  // kCall, kView
};

struct NativeProgram {
  std::vector<Kernel> kernels;
  std::vector<NativeStep> steps;
};

NativeProgram fuse(const TensorGraph& graph);

std::string print(const NativeProgram& program, const TensorGraph& graph, const ir::Trace& trace);

}  // namespace kintsugi::passes
