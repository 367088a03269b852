// The objects through which the program holds watched generators (tables/watched_generators.h): containers,
// instances, iterators, functions, exceptions with the frames that they have passed.
//
// The recorder holds such an object too. It ends where the program lets go of it, so that the generator is
// let go of there. Who holds what is looked up when counts of references to these objects have changed,
// unless frames of the trace hold the generators themselves: between most instructions nothing else is
// compared.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   while (holders.dropOne()) ...  // has let go of a list that held a generator
#pragma once

#include <cstdint>
#include <vector>

#include "capture/dead_objects.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/virtual_table.h"
#include "capture/tables/watched_generators.h"

namespace kintsugi::capture {

class GeneratorHolders {
 public:
  GeneratorHolders(DeadObjects& dead, const FrameStack& frames, VirtualTable& virtuals,
                   const WatchedGenerators& watched)
      : dead_(dead), frames_(frames), virtuals_(virtuals), watched_(watched) {}

  // Between two instructions: drops one object that only the recorder holds. False: there is none.
  bool dropOne();
  // True if the object that dropOne() would drop next holds more than one watched generator: the order in
  // which these end is that of its memory.
  bool isTangled() const { return tangled_; }
  void clear() { held_.clear(); }

 private:
  struct Held {
    uint32_t id = 0;
    PyObject* object = nullptr;
    Py_ssize_t count = 0;  // of references, when it was looked at last
  };
  bool haveGone();
  bool areInFrames() const;
  void findHolders();
  bool mayDrop(const Held& held) const;
  size_t generatorsIn(PyObject* holder) const;

  DeadObjects& dead_;
  const FrameStack& frames_;
  VirtualTable& virtuals_;
  const WatchedGenerators& watched_;
  std::vector<Held> held_;  // the generators, and what holds them or one of these
  bool stale_ = true;       // others may hold them as well
  bool tangled_ = false;
};

}  // namespace kintsugi::capture
