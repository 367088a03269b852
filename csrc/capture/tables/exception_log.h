// Exceptions of the recorded frames that others hold: what they said before they were raised (exceptions.cc).
//
// Owned by the Recorder; the recording thread, GIL held. Holds the exceptions and what it remembers of them.
// Example: log.add({exception, traceback, context, cause}); ... for (Raised& raised : log.raised()) ...
#pragma once

#include <utility>
#include <vector>

#include "pyapi/ref.h"

namespace kintsugi::capture {

// An exception that others hold was raised; what it said before that.
struct Raised {
  pyapi::Ref<> exception;
  pyapi::Ref<> traceback;
  pyapi::Ref<> context;
  pyapi::Ref<> cause;
  bool suppress = false;
  bool byStep = false;
  bool caught = false;
};

class ExceptionLog {
 public:
  std::vector<Raised>& raised() { return raised_; }
  std::vector<Raised> takeRaised() { return std::exchange(raised_, {}); }

  // What the caller of the compiled function handles; null: nothing.
  PyObject* handledOutside() const { return handledOutside_.get(); }
  void setHandledOutside(PyObject* exception) { handledOutside_ = pyapi::newRef(exception); }

  // The pending exception depends on data that no guard covers: no handler may be recorded.
  bool isUnsafe() const { return unsafe_; }
  void setUnsafe(bool unsafe) { unsafe_ = unsafe; }

 private:
  pyapi::Ref<> handledOutside_;
  std::vector<Raised> raised_;
  bool unsafe_ = false;
};

}  // namespace kintsugi::capture
