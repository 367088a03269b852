// Detects that a step has set a variable of a recorded frame from outside.
//
// Since CPython 3.13, `frame.f_locals[name] = value` sets the variable of a running function (PEP 667). The
// variable's shadow would then describe another object. Ownership: none; it lives for one instruction.
// Thread: the recording one, with the GIL. Example:
//
//  const LocalsWatch watch(frames, virtuals);
//  ... the step ...
//  if (watch.changed()) breaks.abort(...);
#pragma once

#include <vector>

#include "capture/tables/frame_stack.h"
#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

class LocalsWatch {
 public:
  LocalsWatch(const FrameStack& frames, const VirtualTable& virtuals);
  bool changed() const;

 private:
  struct Slot {
    const pyapi::Frame* frame;
    int index;
    PyObject* object;
    PyObject* content;  // the content of a cell that nobody else holds
  };
  std::vector<Slot> slots_;
};

}  // namespace kintsugi::capture
