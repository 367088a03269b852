// Objects that can't change and follow from what is pinned: signatures, their parts, compiled patterns
// (calls/signatures.cc, calls/regex.cc). Reading from them is constant and costs no guard.
//
// One that shows something else (the proxy of a class's dict) is frozen only until a step may have changed
// that: thaw(). Borrows what KeptObjects hold; owned by the Recorder; the recording thread, GIL held.
// Example: frozen.add(signature); frozen.contains(signature) is true
#pragma once

#include <unordered_set>

#include "pyapi/ref.h"

namespace kintsugi::capture {

class FrozenObjects {
 public:
  // False: it was one already.
  bool add(PyObject* object) { return frozen_.insert(object).second; }
  bool contains(PyObject* object) const { return wasAdded(object) && !thawed_.contains(object); }
  bool wasAdded(PyObject* object) const { return frozen_.contains(object); }
  void thaw() {
    for (PyObject* object : frozen_) {
      if (Py_TYPE(object) == &PyDictProxy_Type) thawed_.insert(object);
    }
  }

 private:
  std::unordered_set<PyObject*> frozen_;
  std::unordered_set<PyObject*> thawed_;
};

}  // namespace kintsugi::capture
