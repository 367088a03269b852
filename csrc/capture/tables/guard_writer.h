// Writes guards into a document, each once.
//
// A guard says what has to hold of a source for the trace to run; it is checked in the block in which the
// newest of its sources is resolved, or after the newest step that may have changed what it compares. A guard
// that is equal to one in the same block is not written again.
//
// Ownership: borrows the document's guards and nodes, and the blocks. Owned by the Recorder; the recording
// thread. Example: guards.write({GuardKind::kType, source, constants.add(type).id})
#pragma once

#include <vector>

#include "capture/tables/guard_blocks.h"
#include "guard/document.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

class GuardWriter {
 public:
  struct Condition {  // a guard without its block
    guard::GuardKind kind;
    ir::SourceId source = ir::kNone;
    ir::ConstId key = ir::kNone;
    int64_t number = 0;
    ir::SourceId other = ir::kNone;  // of a guard that compares two sources
  };
  GuardWriter(guard::Document& document, const GuardBlocks& blocks)
      : guards_(document.guards.guards), nodes_(document.sources.nodes), blocks_(blocks) {}

  void write(const Condition& condition);

 private:
  std::vector<guard::Guard>& guards_;
  const std::vector<guard::SourceNode>& nodes_;
  const GuardBlocks& blocks_;
  FlatMap<uint64_t, bool> written_;  // hashes of the guards
};

}  // namespace kintsugi::capture
