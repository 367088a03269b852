// The constants of a trace: the objects that its instructions, guards and snapshots name by number.
//
// One number for each object: constants are distinguished by identity. Each is held, so that its address is
// nobody else's. Owned by the Recorder, whose result takes the list over. Thread: the recording one, with the
// GIL. Invalidation: take(). Example: Operand::constant(constants.add(callable).id)
#pragma once

#include <optional>
#include <vector>

#include "ir/trace.h"
#include "pyapi/ref.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

class ConstantPool {
 public:
  struct Added {
    ir::ConstId id;
    bool isNew;
  };
  Added add(PyObject* object);
  // The next one of a list that already has its numbers (a side trace goes on with those of its start, where
  // two may be one object).
  void adopt(PyObject* object);

  std::optional<ir::ConstId> find(PyObject* object) const;
  bool contains(PyObject* object) const { return ids_.contains(object); }
  PyObject* at(ir::ConstId id) const { return objects_[id].get(); }
  PyTypeObject* typeAt(ir::ConstId id) const { return reinterpret_cast<PyTypeObject*>(at(id)); }
  size_t size() const { return objects_.size(); }

  // Holds the object no longer: None takes its place. Only once nothing of the trace will run.
  void release(PyObject* object);
  const std::vector<pyapi::Ref<>>& objects() const { return objects_; }
  std::vector<pyapi::Ref<>> take() { return std::move(objects_); }

 private:
  std::vector<pyapi::Ref<>> objects_;
  FlatMap<PyObject*, ir::ConstId> ids_;
};

}  // namespace kintsugi::capture
