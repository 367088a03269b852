#include "passes/pass_log.h"

#include "diag/log.h"

namespace kintsugi::passes {

namespace {
constexpr diag::log::Channel kChannel = diag::log::Channel::kGraphPasses;
}  // namespace

void PassLog::begin(std::string_view what, const ir::Trace& trace) {
  if (diag::log::enabled(kChannel)) {
    show(std::string(what) + " of " + trace.file + ":" + std::to_string(trace.line));
  }
}

void PassLog::behind(std::string_view pass) {
  if (diag::log::enabled(kChannel)) {
    show("behind " + std::string(pass));
  }
}

void PassLog::show(const std::string& title) {
  std::string text = print_();
  if (text != before_) {
    diag::log::emit(kChannel, title + ":\n" + text);
    before_ = std::move(text);
  }
}

}  // namespace kintsugi::passes
