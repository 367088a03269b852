// Which guard block a source is resolved in, and a guard is checked in.
//
// The guards of a trace are checked in blocks: block 0 before the first instruction, and one more after each
// step whose result, or whose effects, have to be looked at (`guard.block` in the trace), and after each
// operator that runs Python code of the program. What a step that is not looked into, or that code, may have
// changed is read again in the block after it: from then on, older blocks are
// *stale* for anything that can change.
//
// Plain numbers; owned by the Recorder, read by the tables that write sources and guards. Thread: the
// recording one. Example:
//
//   blocks.next();       // after a step
//   blocks.invalidateOlder();  // ... that may have changed anything
//   blocks.ofSource(SourceKind::kDictItem, 0) == blocks.newest()
#pragma once

#include <algorithm>

#include "guard/document.h"
#include "support/check.h"

namespace kintsugi::capture {

class GuardBlocks {
 public:
  guard::BlockId root() const { return root_; }  // block 0, or of a side trace the first block of its own
  guard::BlockId newest() const { return newest_; }
  guard::BlockId validFrom() const { return validFrom_; }
  // True if the newest block has to be written before the next instruction.
  bool isPending() const { return pending_; }

  void beginAt(guard::BlockId first) { root_ = newest_ = first; }
  void next() { ++newest_; }
  void invalidateOlder() { validFrom_ = newest_; }
  void setPending(bool pending) { pending_ = pending; }
  // At the end, when blocks without guards have been taken out.
  void renumber(guard::BlockId newest) { newest_ = newest; }

  // `parent`: the block of the object that the source is read from; 0 for a root source.
  guard::BlockId ofSource(guard::SourceKind kind, guard::BlockId parent) const {
    if (kind == guard::SourceKind::kValue) return newest_;
    KINTSUGI_CHECK(parent <= newest_, "a source of block ", parent, ", which comes after ", newest_);
    const guard::BlockId block = std::max(root_, parent);
    return isRoot(kind) || isImmutable(kind) ? block : std::max(block, validFrom_);
  }
  // `resolved`: the newest block of the sources that the guard compares; validFrom() for a guard without a
  // source.
  guard::BlockId ofGuard(guard::GuardKind kind, guard::BlockId resolved) const {
    KINTSUGI_CHECK(resolved <= newest_, "a guard of block ", resolved, ", which comes after ", newest_);
    const guard::BlockId block = std::max(root_, resolved);
    return asksIdentity(kind) ? block : std::max(block, validFrom_);
  }

 private:
  static bool isRoot(guard::SourceKind kind) {
    return kind == guard::SourceKind::kArg || kind == guard::SourceKind::kPinned ||
           kind == guard::SourceKind::kValue;
  }
  // What is read by such a source can't change during the life of the object that it is read from.
  static bool isImmutable(guard::SourceKind kind) {
    switch (kind) {
      case guard::SourceKind::kType:
      case guard::SourceKind::kTupleItem:
      case guard::SourceKind::kClosure:
      case guard::SourceKind::kGlobals:
      case guard::SourceKind::kBuiltins:
      case guard::SourceKind::kMethodFunction:
      case guard::SourceKind::kMethodSelf:
      case guard::SourceKind::kPartial:
        return true;
      default:
        return false;
    }
  }
  // True if the guard asks for the identity of its object. A step may change the state of an object that is
  // reached as before, but not its identity.
  static bool asksIdentity(guard::GuardKind kind) {
    return kind == guard::GuardKind::kIs || kind == guard::GuardKind::kEquals ||
           kind == guard::GuardKind::kSame || kind == guard::GuardKind::kNotSame;
  }

  guard::BlockId root_ = 0;
  guard::BlockId newest_ = 0;
  guard::BlockId validFrom_ = 0;
  bool pending_ = false;
};

}  // namespace kintsugi::capture
