#include "capture/tables/attribute_log.h"

#include <algorithm>

namespace kintsugi::capture {

namespace {

// Returns the interned string of the same text, so that names can be compared by address.
pyapi::Ref<> interned(PyObject* name) {
  PyObject* one = Py_NewRef(name);
  if (!PyUnicode_CHECK_INTERNED(name)) PyUnicode_InternInPlace(&one);
  return pyapi::steal(one);
}

}  // namespace

OpenAttributes AttributeLog::allOpen() const {
  OpenAttributes all;
  all.addAll(opened_);
  if (before_ != nullptr) all.addAll(*before_);
  return all;
}

bool AttributeLog::isClosed(PyTypeObject* type, PyObject* name) const {
  if (closedClasses_.contains(type)) return true;
  const auto found = closedNames_.find(interned(name).get());
  return found != closedNames_.end() &&
         std::ranges::find(found->second.types, type) != found->second.types.end();
}

void AttributeLog::close(PyTypeObject* type, PyObject* name) {
  pyapi::Ref<> one = interned(name);
  Closed& closed = closedNames_[one.get()];
  if (!closed.name) closed.name = std::move(one);
  if (std::ranges::find(closed.types, type) == closed.types.end()) closed.types.push_back(type);
}

bool AttributeLog::closeAll(PyTypeObject* type) {
  if (hasOpen(type) || written_.has(type)) return false;
  closedClasses_.insert(type);
  return true;
}

}  // namespace kintsugi::capture
