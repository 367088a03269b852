#include "capture/tables/constant_pool.h"

namespace kintsugi::capture {

ConstantPool::Added ConstantPool::add(PyObject* object) {
  const auto [entry, isNew] = ids_.try_emplace(object, static_cast<ir::ConstId>(objects_.size()));
  const ir::ConstId id = entry->second;
  if (isNew) objects_.push_back(pyapi::newRef(object));
  return {id, isNew};
}

void ConstantPool::adopt(PyObject* object) {
  ids_.try_emplace(object, static_cast<ir::ConstId>(objects_.size()));
  objects_.push_back(pyapi::newRef(object));
}

std::optional<ir::ConstId> ConstantPool::find(PyObject* object) const {
  const auto found = ids_.find(object);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void ConstantPool::release(PyObject* object) {
  if (const auto id = find(object)) objects_[*id] = pyapi::newRef(Py_None);
}

}  // namespace kintsugi::capture
