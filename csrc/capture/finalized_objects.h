// What steps gave and does something when it goes: a file that is written out and closed, a socket, or what a
// weak reference tells of.
//
// The recorder keeps what a step gave for as long as it records, because objects are distinguished by their
// address. One with a finalizer in C, or that holds such a one, is freed where the program has dropped it:
// between two instructions, as soon as nobody but the recorder holds it. Its source is forgotten then. A
// replay needs nothing for it: a value dies after the last instruction or snapshot that names it.
//
// Ownership: borrows what KeptObjects hold, and the tables that may hold such an object besides. Owned by the
// Recorder. Thread: the recording's; GIL held. Invalidation: clear(), before KeptObjects are cleared.
// Example: open(path, "w").write(text); open(path).read()
#pragma once

#include <algorithm>
#include <vector>

#include "capture/dead_objects.h"
#include "capture/kept_objects.h"
#include "capture/tables/break_log.h"
#include "capture/tables/exception_log.h"
#include "capture/tables/known_sources.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

class FinalizedObjects {
 public:
  // The tables that know such an object, and drop it.
  struct Around {
    KeptObjects& kept;
    KnownSources& sources;
    const VirtualTable& virtuals;
    ExceptionLog& exceptions;
    DeadObjects& dead;
    Pauses& pauses;
    const BreakLog& breaks;
  };
  explicit FinalizedObjects(const Around& around) : around_(around) {}

  // Does code of the program's run when nobody holds the object any longer, who now is held once?
  static bool runsPython(PyObject* object);
  // Does what it holds, and nobody else?
  static bool holdsPython(PyObject* object);
  // If it, or what it holds, has such a finalizer. Exceptions and tracebacks hold the frames
  // that they pass later.
  void add(PyObject* object);
  // It was reached from such an object, or a step may have made a weak reference to it.
  void addPart(PyObject* object);
  void freeDropped();
  // The same before a step, which is the first who can ask a weak reference: a look at all that the recorder
  // holds between any two instructions would cost too much for them.
  void freeForStep() {
    if (!weak_.empty()) freeDropped();
  }
  bool contains(PyObject* object) const {
    return std::find(objects_.begin(), objects_.end(), object) != objects_.end();
  }
  bool empty() const { return objects_.empty(); }
  void clear() {
    weak_.clear();
    objects_.clear();
    exceptions_.clear();
  }

 private:
  static void addTo(std::vector<PyObject*>& list, PyObject* object);
  bool freeOne(const std::vector<PyObject*>& objects);
  void forgetSwallowed();

  Around around_;
  std::vector<PyObject*> objects_;
  std::vector<PyObject*> exceptions_;  // and tracebacks
  std::vector<PyObject*> weak_;        // weak references, and what they tell of
};

}  // namespace kintsugi::capture
