#include "support/check.h"

#include <cstdio>
#include <cstdlib>

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
    try {
      context->dump_(context->object_, out);
    } catch (const InternalError& error) {
      out += "(the dump itself failed: ";
      out += error.what();
      out += ")";
    }
    if (!out.empty() && out.back() != '\n') {
      out += '\n';
    }
  }
  innermostContext = first;
  return out;
}

void checkFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::string text = std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition;
  if (!message.empty()) {
    text += ": " + message;
  }
  const std::string context = CheckContext::dumpAll();
  if (!context.empty()) {
    text += "\n" + context;
  }
  noteFailedCheck(text);
  if (abortsOnFailedCheck()) {
    std::fprintf(stderr, "kintsugi: %s\n", text.c_str());
    std::fflush(stderr);
    std::abort();
  }
  throw InternalError(text);
}

}  // namespace kintsugi
