// Looks again, in the middle of a run, at what the run has read: are these places still as they were?
//
// A run asks when another thread, or Python code in a step, may have changed something (run_revalidate.cc).
// What the run has written itself is left out; what it is to write later is looked at like any other place.
// Guards on places that no instruction writes are one program. For the others there is a program for each
// set of places that are written yet: these are few guards, so a program is small.
//
// Ownership: owned by the trace whose instructions write; programs borrow the recordings of it and of its
// parents. Threads: GIL held. Invalidation: none. Example:
//
//   const WrittenPlaces* written = rereads.hold(parent, 4, 12, block, args, values, slots);
//   if (written == nullptr) leave();  // else: `slots` has what is there, but for the places in `written`
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/guard_program.h"
#include "runtime/written_places.h"

namespace kintsugi::runtime {

class CompiledTrace;

class Rereads {
 public:
  explicit Rereads(const recording::Recording& effects) : effects_(effects) {}
  Rereads(const Rereads&) = delete;

  // Do the guards of block `block` of `trace` hold: the trace that runs, or the parent that has entered the
  // block? `begin` and `end`: the instructions since then, up to the last one that has changed something.
  // Null: a guard does not hold, or there are too many programs.
  const WrittenPlaces* hold(CompiledTrace& trace, size_t begin, size_t end, guard::BlockId block,
                            const pyapi::Arguments& args, PyObject* const* values, SlotArray slots);
  // For the cycle collector: what the programs keep.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Base {
    const CompiledTrace* trace;
    WrittenPlaces all;       // that any instruction writes
    GuardProgram untouched;  // the guards on other places
  };
  struct Later {
    const Base* base;
    WrittenPlaces written;
    std::optional<GuardProgram> program;  // the guards on places that are written later; none: there are none
  };
  struct Place {
    const Base* base;
    size_t begin, end;
    Later* later;
  };

  Base& baseOf(CompiledTrace& trace);
  Later* laterAt(const Base& base, CompiledTrace& trace, size_t begin, size_t end);

  const recording::Recording& effects_;
  std::vector<std::unique_ptr<Base>> bases_;
  std::vector<std::unique_ptr<Later>> laters_;
  std::vector<Place> places_;
};

}  // namespace kintsugi::runtime
