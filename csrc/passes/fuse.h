// Fusion: groups the core operations of a tensor graph into kernels (passes/group_nodes.h), and puts all in
// an order to run in. A group stores what others need; the rest stays in registers. Nearly linear in the size
// of the graph. No GIL.
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
  size_t undoable = 0;  // so many steps come before the first that writes to the memory of an input
};

// `inOrder`: steps stay in the order of the program. Where autograd sees them, it adds gradients up in that
// order.
// `segment`: that the graph was built from, for the log.
NativeProgram fuse(const TensorGraph& graph, const ir::Trace& segment, bool inOrder = false);

std::string print(const NativeProgram& program, const TensorGraph& graph, const ir::Trace& trace);

}  // namespace kintsugi::passes
