// Objects that can't change and that follow from pinned ones: signatures, their parts, compiled patterns
// (calls/signatures.cc, calls/regex.cc). What is read from them is constant and needs no guard.
//
// The proxy of a class's dict is frozen only until a step may have changed the class: then thaw() is called.
// Borrows objects that KeptObjects hold; owned by the Recorder; the recording thread, GIL held.
// Example: frozen.add(signature); frozen.contains(signature) is true
#pragma once

#include <unordered_set>

#include "pyapi/ref.h"

namespace kintsugi::capture {

class FrozenObjects {
 public:
  // False if the object was added before.
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
