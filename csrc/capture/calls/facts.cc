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

}  // namespace kintsugi::capture
