// What passes make of what they get, in the log: with KINTSUGI_LOGS=graph_passes a text is printed as it
// comes and behind each pass that changed it. Where the channel is off, no text is made.
//
//   PassLog log([&] { return print(graph, segment); });
//   log.begin("tensor graph", segment);
//   dropUnused(graph);
//   log.behind("drop-unused");
//
// Borrows what the function prints. Any thread. No GIL.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/trace.h"

namespace kintsugi::passes {

class PassLog {
 public:
  explicit PassLog(std::function<std::string()> print) : print_(std::move(print)) {}

  // `what` it is, and the place in the program that it is of.
  void begin(std::string_view what, const ir::Trace& trace);
  void behind(std::string_view pass);

 private:
  void show(const std::string& title);

  std::function<std::string()> print_;
  std::string before_;
};

}  // namespace kintsugi::passes
