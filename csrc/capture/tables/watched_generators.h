// Suspended generators that run code when they are closed: inside `try` or `with` (lifetimes.cc).
//
// The recorder's own reference keeps a generator alive that the program has dropped. So these generators are
// watched, and closed as soon as only the recorder holds them. A generator that is resumed is watched again
// when it is suspended again.
//
// Borrows the table of virtual objects. Owned by the Recorder; the recording thread, GIL held. Example:
// watched.add(id); ... while (auto id = watched.takeDropped()) close(*id);
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

class WatchedGenerators {
 public:
  explicit WatchedGenerators(const VirtualTable& virtuals) : virtuals_(virtuals) {}

  void add(uint32_t id) {
    if (!contains(Shadow::virt(id))) ids_.push_back(id);
  }
  bool contains(Shadow shadow) const {
    return shadow.isVirtual() && std::ranges::find(ids_, shadow.virtualId()) != ids_.end();
  }
  bool holdsAny(const Shadows& slots) const {
    return std::ranges::any_of(slots, [this](Shadow slot) { return contains(slot); });
  }
  bool empty() const { return ids_.empty(); }
  const std::vector<uint32_t>& ids() const { return ids_; }
  void clear() { ids_.clear(); }

  // Returns the first suspended generator that the program has dropped. Generators that are not suspended
  // (they run, are over or have been handed out) leave the list.
  std::optional<uint32_t> takeDropped() {
    for (size_t i = 0; i < ids_.size();) {
      const uint32_t id = ids_[i];
      const Virtual& v = virtuals_.at(id);
      const bool waits = v.frame != nullptr && v.kind == VirtualKind::kGenerator;
      if (waits && Py_REFCNT(v.object.get()) > 1) {
        ++i;
        continue;
      }
      ids_.erase(ids_.begin() + static_cast<ptrdiff_t>(i));
      if (waits) return id;
    }
    return std::nullopt;
  }

  // True while generators are closed: their frames are then entered without an announcement.
  bool isClosing() const { return closing_ > 0; }
  class Closing {
   public:
    explicit Closing(WatchedGenerators& watched) : watched_(watched) { ++watched_.closing_; }
    ~Closing() { --watched_.closing_; }
    Closing(const Closing&) = delete;

   private:
    WatchedGenerators& watched_;
  };

 private:
  const VirtualTable& virtuals_;
  std::vector<uint32_t> ids_;
  int closing_ = 0;
};

}  // namespace kintsugi::capture
