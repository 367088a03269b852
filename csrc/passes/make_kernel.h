// The kernel of a group of nodes: its ops, how it walks through memory, what vectors run along.
//
// Pure function, no GIL; row lengths that vary may become requirements (needs a SizeScope).
#pragma once

#include <vector>

#include "passes/group_nodes.h"
#include "passes/kernel.h"

namespace kintsugi::passes {

// `stored`: by node, what has to be in memory afterwards.
Kernel makeKernel(const TensorGraph& graph, const Group& group, const std::vector<bool>& stored);

}  // namespace kintsugi::passes
