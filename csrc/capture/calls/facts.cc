#include "capture/calls/facts.h"

namespace kintsugi::capture {

const char* nameOf(StateWord word) {
  switch (word) {
#define KINTSUGI_STATE_WORD(name, text) \
  case StateWord::name:                 \
    return text;
#include "capture/calls/state_words.def"
#undef KINTSUGI_STATE_WORD
    case StateWord::kUnnamed:
      break;
  }
  return "";
}

const char* nameOf(Reads reads) {
  switch (reads) {
    case Reads::kArguments:
      return "arguments";
    case Reads::kProcess:
      return "process";
    case Reads::kWorld:
      return "world";
  }
  return "";
}

const char* nameOf(Writes writes) {
  switch (writes) {
    case Writes::kArguments:
      return "arguments";
    case Writes::kProcess:
      return "process";
    case Writes::kOtherProcesses:
      return "other processes";
  }
  return "";
}

const char* nameOf(Waits waits) {
  switch (waits) {
    case Waits::kNever:
      return "never";
    case Waits::kProcesses:
      return "processes";
    case Waits::kThreads:
      return "threads";
  }
  return "";
}

const char* nameOf(Python python) {
  switch (python) {
    case Python::kNone:
      return "none";
    case Python::kOfArguments:
      return "arguments";
    case Python::kAny:
      return "any";
  }
  return "";
}

}  // namespace kintsugi::capture
