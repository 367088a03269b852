// Objects whose identity a recording uses. Each is held once, so that its address is not reused.
//
// Ownership: one reference to each object. Thread: the recording's; GIL held. Invalidation: clear(). Dropping
// an object may run code that adds another one, so take() moves the reference to the caller, who drops it.
// Example:
//
//   kept.add(file);
//   pyapi::Ref<> last = kept.take(file);  // the caller's, from now on
#pragma once

#include <utility>
#include <vector>

#include "pyapi/ref.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

class KeptObjects {
 public:
  void add(PyObject* object) {
    if (places_.try_emplace(object, objects_.size()).second) objects_.push_back(pyapi::newRef(object));
  }
  bool contains(PyObject* object) const { return places_.contains(object); }
  // Null if the object is not kept.
  pyapi::Ref<> take(PyObject* object) {
    const auto found = places_.find(object);
    if (found == places_.end()) return {};
    pyapi::Ref<> taken = std::move(objects_[found->second]);
    places_.erase(found);
    return taken;
  }
  // Drops all objects, the oldest first.
  void clear() {
    places_.clear();
    const std::vector<pyapi::Ref<>> all = std::exchange(objects_, {});
  }

 private:
  std::vector<pyapi::Ref<>> objects_;  // null: taken
  FlatMap<PyObject*, size_t> places_;
};

}  // namespace kintsugi::capture
