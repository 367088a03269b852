#include "support/check.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "support/contain.h"
#include "support/verification.h"

namespace kintsugi {

namespace {

thread_local CheckContext* innermostContext = nullptr;

}  // namespace

CheckContext::CheckContext(const void* object, Dump dump)
    : object_(object), dump_(dump), outer_(innermostContext) {
  innermostContext = this;
}

CheckContext::~CheckContext() { innermostContext = outer_; }

std::string CheckContext::dumpAll() {
  std::string out;
  // Taken off the list while it dumps: a check that fails inside a dump must not start the dump again.
  CheckContext* first = innermostContext;
  for (CheckContext* context = first; context != nullptr; context = context->outer_) {
    innermostContext = context->outer_;
    if (const auto failure = contain([&] { context->dump_(context->object_, out); })) {
      out += "(the dump itself failed: " + failure->text + ")";
    }
    if (!out.empty() && out.back() != '\n') {
      out += '\n';
    }
  }
  innermostContext = first;
  return out;
}

namespace {

std::string withContext(std::string text) {
  const std::string context = CheckContext::dumpAll();
  return context.empty() ? text : text + "\n" + context;
}

[[noreturn]] void abortOrThrow(const std::string& text) {
  if (abortsOnFailedCheck()) {
    std::fprintf(stderr, "kintsugi: %s\n", text.c_str());
    std::fflush(stderr);
    std::abort();
  }
  throw InternalError(text);
}

}  // namespace

void checkFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::string text = std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition;
  if (!message.empty()) {
    text += ": " + message;
  }
  text = withContext(std::move(text));
  noteFailedCheck(text);
  abortOrThrow(text);
}

void failAsAsked(const std::string& text) { abortOrThrow(withContext(text)); }

}  // namespace kintsugi
