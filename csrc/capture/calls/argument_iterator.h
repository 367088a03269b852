// Iterates over an argument in place of a C function (sum, list, tuple). Items are taken one by one, and the
// Python code that makes them is recorded. No exit is possible until the call is over.
//
// Example: ArgumentIterator items(ctx, 0); while (items.next()) use(items.item(), items.shadow());
// items.failed()
// ... Lives for one model call; GIL held.
#pragma once

#include "capture/calls/model.h"

namespace kintsugi::capture {

// True if generators or a Python `__next__` make the items of this argument.
bool makesFrames(CallContext& ctx, size_t argument);
// Calls a polyfill that does what the C function would do with such items, so that the trace can be left, and
// can go on, between two items. Nothing: it is not such a call.
std::optional<Flow> iterateInstead(CallContext& ctx, const char* polyfill, Shadow& result);

class ArgumentIterator {
 public:
  // Iterates over argument `at` of the call.
  ArgumentIterator(CallContext& ctx, size_t at) : ctx_(ctx), at_(at) {}
  // True if Python code makes the items of the argument.
  bool runsPythonCode() const;
  // Makes the iterator. False: failed().
  bool begin();
  // Takes the next item, after begin() if that was not called. False: the end, or failed().
  bool next();
  PyObject* item() const { return item_.get(); }
  Shadow shadow() const { return shadow_; }
  bool failed() const { return failed_; }  // an exception is pending, or the recording has ended
  // Passes on the pending exception: the items were taken in place of the instruction.
  Flow raise() const { return ctx_.rec.steps.replaceCall(ctx_, nullptr); }

 private:
  CallContext& ctx_;
  size_t at_;
  pyapi::Ref<> iterator_;
  Shadow iteratorShadow_;
  pyapi::Ref<> item_;
  Shadow shadow_;
  bool failed_ = false;
};

}  // namespace kintsugi::capture
