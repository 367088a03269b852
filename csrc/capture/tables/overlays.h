// What the trace has written to objects that are older than it.
//
// The write happens for real while recording and is an effect of the trace. A later read in the same trace
// has to see what was written, and must not add a guard on it. So each such object has an overlay: the
// shadows of what was put there. An overlay holds its object. Unknown code may change anything: all overlays
// are cleared then, and the objects are read again under guards.
//
// Other threads may write to the same object while it is recorded. So what was written is kept beside its
// shadow: a later read that finds another object ends the recording (Objects::readBack).
//
// Owned by the Recorder; the recording thread, GIL held. A reference to an overlay holds until it is taken or
// all are cleared. Example: overlays.make(dict).overlay.written(dict, key, shadow, value)
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/shadow.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

// What was written under keys or names, each with its shadow. Holds plain objects, whose addresses are soon
// used again. Others are held by the recorder's tables, and have to die where the program lets them.
class WrittenEntries {
 public:
  struct Entry {
    Shadow shadow;
    const void* object;  // only to be compared; null: a cell was emptied
  };
  void note(PyObject* key, Shadow shadow, PyObject* object);
  void forget(PyObject* key);
  std::optional<Entry> find(PyObject* key) const;
  bool contains(PyObject* key) const { return find(key).has_value(); }

 private:
  pyapi::Ref<> entries_;  // dict: key -> (encoded shadow, address, object if plain); null: none
};

struct Overlay {
  pyapi::Ref<> object;
  WrittenEntries attrs;          // what was written to slots, by name
  WrittenEntries entries;        // by key; for a cell: None -> its content
  pyapi::Ref<> deleted;          // dict of the keys that were deleted; null: none
  pyapi::Ref<> fresh;            // for a dict: keys that the trace has added; null: none
  Py_ssize_t grown = 0;          // by how much a dict is longer than it was
  Shadows tail;                  // for a list: what was appended, while no element was read
  std::optional<Shadows> parts;  // for a list: all elements, once it was changed otherwise
  bool dirty = false;            // changed in a way that is not tracked
  bool varies = false;           // for a set: the same changes may change what it holds now

  // Keys were added without a guard that the dict lacked them, so no guard pins its length.
  bool lengthUnknown() const { return static_cast<bool>(fresh); }
  bool isDeleted(PyObject* key) const { return deleted && PyDict_Contains(deleted.get(), key) == 1; }
  void noteDeleted(PyObject* key);
  // Notes `dict[key] = value`, before it is done: the dict is asked whether it has the key already.
  void written(PyObject* dict, PyObject* key, Shadow shadow, PyObject* value);
};

class Overlays {
 public:
  struct Made {
    Overlay& overlay;
    bool isNew;
  };
  Made make(PyObject* object);
  Overlay* find(PyObject* object);  // null: the trace has not written to it
  bool contains(PyObject* object) const { return overlays_.contains(object); }
  bool empty() const { return overlays_.empty(); }
  // Removes the overlay and returns its reference to the object; null: there is no overlay.
  pyapi::Ref<> take(PyObject* object);
  void clear() { overlays_.clear(); }

  template <typename Visit>
  void eachObject(Visit&& visit) const {
    for (const auto& [object, overlay] : overlays_) visit(object);
  }

 private:
  std::unordered_map<PyObject*, Overlay> overlays_;
};

}  // namespace kintsugi::capture
