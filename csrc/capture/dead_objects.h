// Objects that were made in the trace and that nobody but the recorder holds any more: their identity
// can't be asked for again, so they go, and the tensors in them with them. Without it a recording would keep
// the result of every layer that was ever in an argument tuple, and a first call would need many times
// eager's memory.
//
// Only exact tuples, lists and dicts: no code of the program's runs when one of them goes. A container in
// another one goes with it or in a later sweep.
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

// Does a weak reference tell whether it has gone?
bool isWeaklyReferenced(PyObject* object);
// ... and call somebody then?
bool hasWeakCallback(PyObject* object);

class DeadObjects {
 public:
  DeadObjects(VirtualTable& virtuals, Pauses& pauses) : virtuals_(virtuals), pauses_(pauses) {}

  void add(uint32_t virtualId) {
    ids_.push_back(virtualId);
    live_.push_back(virtualId);
  }
  // Looks at the newest ones, and at all of them once there are many more than were left by the last such
  // sweep.
  void sweep();
  // All of them, instances of classes without a finalizer, and exceptions: what they hold is waited for.
  void sweepInstances();

 private:
  void sweepFrom(size_t first);
  void drop(Virtual& v);

  VirtualTable& virtuals_;
  Pauses& pauses_;
  std::vector<uint32_t> ids_;
  std::vector<uint32_t> live_;  // of these, and of instances, those that no sweep has seen gone
  size_t left_ = 0;             // by the last sweep of all
};

}  // namespace kintsugi::capture
