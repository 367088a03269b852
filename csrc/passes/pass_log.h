// What passes make of what they get, in the log: with KINTSUGI_LOGS=graph_passes a text is printed as it
// comes and after each pass that changed it, with the place in the program. Where the channel is off, no
// text is made.
//
//   PassLog log(segment, [&] { return print(graph, segment); });
//   log.begin("tensor graph");                            tensor graph of f.py:3: ...
//   log.run("graph", "drop-unused",                       after drop-unused of f.py:3: ...
//           [&] { return graph.nodes.size(); }, [&] { dropUnusedNodes(graph); });
//
// Borrows the trace and what the functions use. Any thread. No GIL.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/trace.h"
#include "passes/pass_statistics.h"

namespace kintsugi::passes {

class PassLog {
 public:
  // `of`: the trace that says where in the program this is.
  PassLog(const ir::Trace& of, std::function<std::string()> print) : of_(of), print_(std::move(print)) {}

  void begin(std::string_view what);
  void after(std::string_view pass);

  // Runs a pass: its time and what it made of how much go to the statistics, its result to the log.
  template <class Pass>
  void run(const char* kind, const char* name, std::function<size_t()> size, const Pass& pass) {
    {
      const PassTimer timer(kind, name, std::move(size));
      pass();
    }
    after(name);
  }

 private:
  void show(const std::string& title);

  const ir::Trace& of_;
  std::function<std::string()> print_;
  std::string before_;
};

}  // namespace kintsugi::passes
