// Finds the guards of a trace that are about a place which some of its instructions write.
//
// When another thread has run in the middle of a run (run_revalidate.cc), guards are checked again. By then
// the effects that the run has had so far may have changed such places (`self.n += 1`), so their guards are
// left out. A place that the run is to write later is looked at like any other. A place
// is a key of a dict, an attribute, or a cell. Lists, and objects that calls are given, count as a whole.
//
// Ownership: owns its tables. Threads: made with the GIL held, constant then. Invalidation: none. Example:
//
//   const WrittenPlaces written(recording, 0, 12);  // by the first twelve instructions
//   GuardProgram program(recording, [&](const guard::Guard& g) { return !written.concerns(g); });
#pragma once

#include <vector>

#include "recording/recording.h"

namespace kintsugi::runtime {

class WrittenPlaces {
 public:
  // By the instructions from `begin` to `end`, which is not one of them.
  WrittenPlaces(const recording::Recording& recording, size_t begin, size_t end);
  bool concerns(const guard::Guard& guard) const;
  bool operator==(const WrittenPlaces& other) const = default;
  // Is the source read from such a place?
  bool covers(guard::SourceId source) const { return covered_[source]; }

 private:
  void noteEffect(const recording::Recording& recording, const ir::Instruction& instruction);

  std::vector<bool> covered_;  // by source: it, or what it is read from, is written
  std::vector<bool> changed_;  // by source: a container that gets other entries or elements
};

}  // namespace kintsugi::runtime
