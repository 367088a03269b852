// Exceptions that were raised in recorded frames and that are also held outside the trace, with the fields
// that they had before they were raised (exceptions.cc).
//
// Owned by the Recorder; the recording thread, GIL held. Holds the exceptions and the old fields.
// Example: log.raised().push_back({exception, traceback, context, cause, suppress});
#pragma once

#include <utility>
#include <vector>

#include "pyapi/ref.h"

namespace kintsugi::capture {

// One such exception, with its fields as they were before it was raised.
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

  // The exception that the caller of the compiled function is handling; null: none.
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
