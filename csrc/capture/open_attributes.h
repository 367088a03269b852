// Attributes of classes that a program sets while it runs (`Layer.calls += 1`), as pairs of class and name.
//
// Plain data with references to both. Written by the recorder, kept by the driver from recording to
// recording; the GIL is needed.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "pyapi/ref.h"

namespace kintsugi::capture {

class OpenAttributes {
 public:
  bool empty() const { return types_.empty(); }
  void clear() { types_.clear(); }

  bool has(PyTypeObject* type) const { return types_.contains(type); }

  bool contains(PyTypeObject* type, PyObject* name) const {
    const auto found = types_.find(type);
    return found != types_.end() && has(found->second, name);
  }

  void add(PyTypeObject* type, PyObject* name) {
    Names& names = types_[type];
    if (!names.type) names.type = pyapi::newRef(reinterpret_cast<PyObject*>(type));
    if (!has(names, name)) names.names.push_back(pyapi::newRef(name));
  }

  void addAll(const OpenAttributes& other) {
    other.each([this](PyTypeObject* type, PyObject* name) { add(type, name); });
  }

  template <typename Visit>
  void each(Visit&& visit) const {
    for (const auto& [type, names] : types_) {
      for (const pyapi::Ref<>& name : names.names) visit(type, name.get());
    }
  }

 private:
  struct Names {
    pyapi::Ref<> type;
    std::vector<pyapi::Ref<>> names;
  };

  static bool has(const Names& names, PyObject* name) {
    return std::any_of(names.names.begin(), names.names.end(), [name](const pyapi::Ref<>& known) {
      return known.get() == name || PyUnicode_Compare(known.get(), name) == 0;
    });
  }

  std::unordered_map<PyTypeObject*, Names> types_;
};

}  // namespace kintsugi::capture
