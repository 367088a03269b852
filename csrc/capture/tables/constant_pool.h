// The constants of a trace: the objects that its instructions, guards and snapshots name by number.
//
// Each object has one number: constants are distinguished by identity. The pool holds its objects, so that
// their addresses are not reused. Owned by the Recorder, whose result takes the list over. Thread: the
// recording one, with the GIL. Invalidation: take(). Example: Operand::constant(constants.add(callable).id)
#pragma once

#include <optional>
#include <vector>

#include "ir/trace.h"
#include "pyapi/ref.h"
#include "support/check.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

class ConstantPool {
 public:
  struct Added {
    ir::ConstId id;
    bool isNew;
  };
  Added add(PyObject* object);
  // Appends a constant of the parent trace under its old number, for a side trace. The same object may have
  // several numbers there.
  void adopt(PyObject* object);

  std::optional<ir::ConstId> find(PyObject* object) const;
  bool contains(PyObject* object) const { return ids_.contains(object); }
  PyObject* at(ir::ConstId id) const {
    KINTSUGI_CHECK(id < objects_.size(), "constant #", id, " of ", objects_.size());
    return objects_[id].get();
  }
  PyTypeObject* typeAt(ir::ConstId id) const { return reinterpret_cast<PyTypeObject*>(at(id)); }
  size_t size() const { return objects_.size(); }

  // Drops the reference to the object; None takes its place. Only for a trace that will never run.
  void release(PyObject* object);
  const std::vector<pyapi::Ref<>>& objects() const { return objects_; }
  std::vector<pyapi::Ref<>> take() { return std::move(objects_); }

 private:
  std::vector<pyapi::Ref<>> objects_;
  FlatMap<PyObject*, ir::ConstId> ids_;
};

}  // namespace kintsugi::capture
