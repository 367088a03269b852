// Writes of the trace that end an object of the program, so that code of the program runs: a `__del__`, a
// callback of a weak reference, the `finally` of a generator that waits.
//
// Such code may change anything, so the write is an opaque step of the trace, behind which everything is read
// again. So is each write that was seen to do this in an earlier run (EndingPlaces), whatever is there now,
// and one that leaves a weak reference empty. The recorder itself holds objects that the trace has read.
// Those that the write ends go right behind its instruction, where the program lets go of them.
//
// Ownership: borrows the tables; EndingPlaces belong to the callable and hold its code objects. Thread: the
// recording one, GIL held. Example: self.handle = Handle()
#pragma once

#include <vector>

#include "capture/ending_places.h"
#include "capture/kept_objects.h"
#include "capture/roles.h"
#include "capture/tables/break_log.h"
#include "capture/tables/class_versions.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/guard_blocks.h"
#include "capture/tables/known_sources.h"
#include "capture/tables/overlays.h"
#include "capture/tables/pauses.h"

namespace kintsugi::capture {

class EndingWrites final : public WriteSteps {
 public:
  struct Tables {
    const EndingPlaces* places;  // null: none
    const ir::Trace& trace;
    ConstantPool& constants;
    KnownSources& sources;
    KeptObjects& kept;
    Overlays& overlays;
    GuardBlocks& blocks;
    ClassVersions& classVersions;
    Pauses& pauses;
  };
  EndingWrites(BreakSink& breaks, const Tables& around) : breaks_(breaks), tables_(around) {}

  PyObject* stepFor(ir::Op op, PyObject* target, PyObject* key, ir::StateId before) override;
  bool isPending() const { return pending_; }
  // Behind the instruction: lets go of what has ended. Behind a step everything is to be read again.
  void finish(StaleReads& reads);

 private:
  Py_ssize_t ownReferences(PyObject* object) const;

  BreakSink& breaks_;
  Tables tables_;
  std::vector<PyObject*> ending_;  // held by the recorder alone behind the instruction
  bool pending_ = false;
  bool runs_ = false;  // code of the program runs
};

}  // namespace kintsugi::capture
