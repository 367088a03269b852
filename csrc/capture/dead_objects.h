// Drops objects that the trace has made and that only the recorder still holds. Their identity can't be asked
// for any more. Without this, a recording would keep the result of every layer that was ever in an argument
// tuple, in an instance (a dataclass, the context of an autograd.Function) or in an exception with its
// frames, and a first call would need many times eager's memory.
//
// Objects with a finalizer, or with a weak reference that would tell, are left: dropping the others runs no
// code of the program. A container inside another one goes with it or in a later sweep.
//
// Ownership: borrows the table of virtual objects, and pauses the recording while an object goes. Owned by
// the Recorder; the recording thread, GIL held. Example: dead.add(shadow.virtualId()); ... dead.sweep();
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/tables/pauses.h"
#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

// True if a weak reference tells whether the object still exists.
bool isWeaklyReferenced(PyObject* object);
// True if such a reference also has a callback.
bool hasWeakCallback(PyObject* object);

class DeadObjects {
 public:
  DeadObjects(VirtualTable& virtuals, Pauses& pauses) : virtuals_(virtuals), pauses_(pauses) {}

  void add(uint32_t virtualId) {
    ids_.push_back(virtualId);
    live_.push_back(virtualId);
  }
  // Looks at the newest objects. Looks at all of them if there are many more than the last full sweep has
  // left.
  void sweep();
  // Looks at all objects, because somebody waits for the end of what they hold.
  void sweepAll();
  void drop(Virtual& v);  // only the recorder holds it

 private:
  void sweepFrom(size_t first);

  VirtualTable& virtuals_;
  Pauses& pauses_;
  std::vector<uint32_t> ids_;
  std::vector<uint32_t> live_;  // objects that no sweep has dropped
  size_t left_ = 0;             // by the last full sweep
};

}  // namespace kintsugi::capture
