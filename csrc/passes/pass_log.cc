#include "passes/pass_log.h"

#include "diag/log.h"

namespace kintsugi::passes {

namespace {
constexpr diag::log::Channel kChannel = diag::log::Channel::kGraphPasses;
}  // namespace

void PassLog::begin(std::string_view what) {
  if (diag::log::enabled(kChannel)) {
    show(std::string(what));
  }
}

void PassLog::after(std::string_view pass) {
  if (diag::log::enabled(kChannel)) {
    show("after " + std::string(pass));
  }
}

void PassLog::show(const std::string& title) {
  std::string text = print_();
  if (text != before_) {
    diag::log::emit(kChannel, title + " of " + of_.file + ":" + std::to_string(of_.line) + ":\n" + text);
    before_ = std::move(text);
  }
}

}  // namespace kintsugi::passes
