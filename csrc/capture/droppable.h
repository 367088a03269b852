// Objects that were made in the trace and that nobody but the recorder holds any more: their identity
// can't be asked for again, so they go, and the tensors in them with them. Without it a recording would keep
// the result of every layer that was ever in an argument tuple, and a first call would need many times
// eager's memory.
//
// Only exact tuples, lists and dicts: no code of the program's runs when one of them goes. A container in
// another one goes with it or in a later sweep. Owned by the Recorder; the recording thread, GIL held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pyapi/ref.h"

namespace kintsugi::capture {

struct RecorderState;

// Does a weak reference tell whether it has gone?
bool isWeaklyReferenced(PyObject* object);
// ... and call somebody then?
bool hasWeakCallback(PyObject* object);

class Droppable {
 public:
  void add(uint32_t virtualId) {
    ids_.push_back(virtualId);
    live_.push_back(virtualId);
  }
  // Looks at the newest ones, and at all of them once there are many more than were left by the last such
  // sweep.
  void sweep(RecorderState& state);
  // All of them, instances of classes without a finalizer, and exceptions: what they hold is waited for.
  void sweepInstances(RecorderState& state);

 private:
  void sweepFrom(RecorderState& state, size_t first);

  std::vector<uint32_t> ids_;
  std::vector<uint32_t> live_;  // of these, and of instances, those that no sweep has seen gone
  size_t left_ = 0;             // by the last sweep of all
};

}  // namespace kintsugi::capture
