#include "capture/calls/substitutes.h"

#include <unordered_map>

namespace kintsugi::capture {

namespace {

// Never destroyed: it holds Python objects, and the interpreter ends before static objects are destroyed.
std::unordered_map<PyObject*, PyObject*>& table() {
  static auto* made = new std::unordered_map<PyObject*, PyObject*>();
  return *made;
}

}  // namespace

void substitute(PyObject* original, PyObject* function) {
  if (table().try_emplace(original, function).second) {
    Py_INCREF(original);
    Py_INCREF(function);
  }
}

PyObject* substituteOf(PyObject* callable) {
  if (table().empty()) return nullptr;
  const auto found = table().find(callable);
  return found == table().end() ? nullptr : found->second;
}

}  // namespace kintsugi::capture
