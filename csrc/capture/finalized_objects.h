// Results of steps whose end is noticed: a file that is written out and closed, a socket, or an object that a
// weak reference refers to.
//
// The recorder keeps the result of a step until the end of the recording, because objects are distinguished
// by address. An object with a finalizer in C, or that holds such an object, is freed where the program drops
// it: between two instructions, as soon as only the recorder holds it. So is one that holds another object's
// memory, as a memoryview does. Its source is forgotten then. A replay needs nothing for it: a value is
// dropped after the last instruction or snapshot that names it.
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
  // The tables that know such objects, and that drop them.
  struct Tables {
    KeptObjects& kept;
    KnownSources& sources;
    const VirtualTable& virtuals;
    ExceptionLog& exceptions;
    DeadObjects& dead;
    Pauses& pauses;
    const BreakLog& breaks;
  };
  explicit FinalizedObjects(const Tables& around) : tables_(around) {}

  // True if code of the program runs when the last reference to the object goes. It has one reference now.
  static bool runsPython(PyObject* object);
  // True if code of the program runs when objects go that only this object holds.
  static bool holdsPython(PyObject* object);
  // True if code of the program runs when the exception goes, because of what finished frames hold that it
  // has passed.
  static bool passedFramesRunPython(PyObject* exception);
  // Adds a result of a step, if the object or what it holds has such a finalizer. Exceptions and tracebacks
  // are always added, since they hold the frames that they pass later.
  void add(PyObject* object);
  // Adds an object that was reached from such a result, or to which a step may have made a weak reference.
  void addPart(PyObject* object);
  // Between two instructions. True: something was freed.
  bool freeDropped();
  // Frees dropped objects before a step, which is the first that may look at a weak reference, at a count of
  // references or at who uses some memory. Checking all of them between any two instructions would cost too
  // much.
  void freeForStep() {
    if (!bare_.empty()) sortBare();
    if (!weak_.empty() || !exceptions_.empty()) freeDropped();
  }
  bool contains(PyObject* object) const {
    return std::find(objects_.begin(), objects_.end(), object) != objects_.end();
  }
  bool empty() const { return objects_.empty(); }
  void clear() {
    weak_.clear();
    bare_.clear();
    objects_.clear();
    exceptions_.clear();
  }

 private:
  static void addTo(std::vector<PyObject*>& list, PyObject* object);
  bool freeOne(const std::vector<PyObject*>& objects);
  void forgetSwallowed();
  void sortBare();
  void free(PyObject* object);

  Tables tables_;
  std::vector<PyObject*> objects_;
  std::vector<PyObject*> exceptions_;  // exceptions and tracebacks
  std::vector<PyObject*> weak_;        // weak references and their targets
  std::vector<PyObject*> bare_;        // other objects of C types, to which nothing but a step can write
};

}  // namespace kintsugi::capture
