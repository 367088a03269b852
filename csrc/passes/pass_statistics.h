// Time that passes took in this process, and the sizes of what they got and made: traces, segments, tensor
// graphs, groups of nodes, native programs. kintsugi.pass_statistics() shows them.
//
//   {
//     const PassTimer timer("graph", "drop-unused", [&] { return graph.nodes.size(); });
//     dropUnusedNodes(graph);
//   }
//
// Threads: any, passes run where recordings and compilations do. No GIL. Costs a lock and a look-up a pass.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kintsugi::passes {

struct PassTotals {
  std::string kind;  // what it works on: trace, segment, graph, groups, program
  std::string name;
  uint64_t runs = 0;
  uint64_t nanoseconds = 0;
  uint64_t before = 0;  // instructions or nodes, of all runs
  uint64_t after = 0;
};

// In the order in which they ran first.
std::vector<PassTotals> passStatistics();
void clearPassStatistics();

// Names are constants. A pass that throws is counted as well.
class PassTimer {
 public:
  PassTimer(const char* kind, const char* name, std::function<size_t()> size);
  ~PassTimer();
  PassTimer(const PassTimer&) = delete;

 private:
  const char* kind_;
  const char* name_;
  std::function<size_t()> size_;
  size_t before_;
  uint64_t start_;
};

}  // namespace kintsugi::passes
