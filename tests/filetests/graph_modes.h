// File tests whose input is a tensor graph, a kernel or a plan.
#pragma once

#include <span>
#include <string>

#include "filetests/runner.h"
#include "passes/graph_text.h"

namespace kintsugi::filetests {

std::span<const ModeRow> graphModes();

// The graph as text, which together with its segment has to read back as the same. Needs a SizeScope.
std::string printGraphChecked(const passes::GraphDocument& document);

}  // namespace kintsugi::filetests
