// The side traces of one trace: which exits have been taken, how often, and the traces that go on there.
//
// Idea: a side trace is a whole trace of its own, whose first instructions are those of its parent up to the
// guard that failed; it numbers values, sources and guard blocks as its parent does. So a run crosses over by
// continuing with the same value array in the other program: nothing is rebuilt, no entry guard runs again.
// The first instruction of its own is the guard that distinguishes it from its parent and its siblings.
//
// Ownership: a parent owns its side traces by shared_ptr; a run holds one more of the trace that it is in.
// Threads: everything here needs the GIL. Invalidation: a site keeps the `limit` most recently used side
// traces; a dropped one takes its own side traces with it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "support/backoff.h"

namespace kintsugi::runtime {

class CompiledTrace;

struct SideLink {
  std::shared_ptr<CompiledTrace> trace;
  uint64_t lastUsed = 0;
};

struct ExitSite {
  uint32_t failures = 0;  // recordings that failed
  Backoff backoff{1};     // of recordings: each makes the next one wait longer
  std::vector<SideLink> sides;
};

class SideTraces {
 public:
  // The site of a guard instruction (an index into Trace::code), or null.
  ExitSite* find(uint32_t guard);
  ExitSite& at(uint32_t guard) { return sites_[guard]; }
  // Links a side trace to the guard. Returns the one that had to go, to be freed when nothing is in the
  // middle of a change.
  std::shared_ptr<CompiledTrace> link(uint32_t guard, std::shared_ptr<CompiledTrace> trace, size_t limit);
  static void used(SideLink& link) { link.lastUsed = ++clock(); }
  // Takes the side trace with this time of use out; null: there is none.
  std::shared_ptr<CompiledTrace> unlink(uint64_t lastUsed);

  size_t count() const;  // of all side traces below, the side traces' own included
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const auto& [guard, site] : sites_) {
      for (const SideLink& link : site.sides) {
        visit(guard, link);
      }
    }
  }

 private:
  static uint64_t& clock();
  std::unordered_map<uint32_t, ExitSite> sites_;
};

// Of the side traces below `trace` that have none of their own, the one used least recently: its owner and
// the time of its use, if that is before `oldest`. `keep` is left alone.
void findOldestLeaf(CompiledTrace& trace, const CompiledTrace& keep, CompiledTrace*& owner, uint64_t& oldest);

}  // namespace kintsugi::runtime
