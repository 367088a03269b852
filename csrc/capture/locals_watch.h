// Variables of the recorded frames that a step sets from outside.
//
// From CPython 3.13 on `frame.f_locals[name] = value` sets the variable of a running function (PEP 667). What
// the recorder knows of it would be that of another object then. Ownership: none; it lives for the length of
// one instruction. Thread: the recording one, with the GIL. Example: const LocalsWatch watch(rec); ... if
// (watch.changed()) rec.abort(...);
#pragma once

#include <vector>

#include "capture/record_context.h"

namespace kintsugi::capture {

class LocalsWatch {
 public:
  explicit LocalsWatch(RecordContext& rec);
  bool changed() const;

 private:
  struct Slot {
    const pyapi::Frame* frame;
    int index;
    PyObject* object;
    PyObject* content;  // of a cell that nobody else holds
  };
  std::vector<Slot> slots_;
};

}  // namespace kintsugi::capture
