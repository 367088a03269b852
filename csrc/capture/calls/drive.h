// What C code does that iterates over its argument (sum, list, tuple): the items are asked for one by one,
// and the Python code that makes them is recorded. No exit is possible until the call is over.
//
// Example: Driver driver(ctx, 0); while (driver.next()) use(driver.item(), driver.shadow()); driver.failed()
// ... Lives for one model call; GIL held.
#pragma once

#include "capture/calls/model.h"

namespace kintsugi::capture {

// Will generators or a Python __next__ make the items of this argument?
bool makesFrames(CallContext& ctx, size_t argument);
// A function of kintsugi._polyfills does what the C function would do with such items, so that the trace can
// be left, and go on, between them. Nothing: not such a call.
std::optional<Flow> iterateInstead(CallContext& ctx, const char* polyfill, Shadow& result);

class Driver {
 public:
  // Iterates over argument `at` of the call.
  Driver(CallContext& ctx, size_t at) : ctx_(ctx), at_(at) {}
  // Is this an argument whose items Python code makes?
  bool worthwhile() const;
  // Takes the iterator. False: failed().
  bool begin();
  // An item at a time; begins where that was not done. False: the end, or failed().
  bool next();
  PyObject* item() const { return item_.get(); }
  Shadow shadow() const { return shadow_; }
  bool failed() const { return failed_; }  // an exception is pending, or the recording has ended
  // Executes nothing: gives an exception back to the interpreter. Only when an exception is pending.
  Flow raise() const { return Flow::kRaise; }

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
