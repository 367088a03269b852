// A finished recording with everything that running it needs: the trace, its guards, and the Python objects
// that its constants stand for.
//
// Ownership: a TraceCache owns its CompiledTraces by shared_ptr; a running call holds one more reference, so
// that eviction and reset() never free a trace under a thread. Constants: immutable objects, code objects,
// functions and types are held strongly; other user objects by weak reference (see ConstTable). Threads:
// constant after install(), except the counters and the guard memo, which are written under the GIL.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "guard/document.h"
#include "ir/segments.h"
#include "pyapi/ref.h"
#include "runtime/guard_program.h"
#include "runtime/replay.h"
#include "runtime/side_traces.h"
#include "torchapi/global_state.h"
#include "torchapi/tensor_info.h"

namespace kintsugi::runtime {

// A place where the compiled graph is split, for explain(): an opaque step or a refused mending.
struct BreakRecord {
  diag::Diagnostic diagnostic;
};

// What the recorder delivers.
struct Recording {
  guard::Document document;
  std::vector<pyapi::Ref<>> consts;                 // by ConstId
  std::vector<torchapi::TensorInfo> tensorInfos;    // by MetaId
  std::vector<torchapi::GlobalState> globalStates;  // by state number
  std::vector<BreakRecord> breaks;
  std::vector<uint64_t> sourceHashes;  // by SourceId: of the path
  std::vector<torchapi::MetaLevel>
      metaLevels;  // by ValueId: how much of its metadata is the same in each run
  // A side trace: the instructions before `start` are its parent's and are never run, nor are the guard
  // blocks before `firstBlock`.
  uint32_t start = 0;
  guard::BlockId firstBlock = 0;
  size_t argCount = 0;   // positional arguments of the entry call
  int recursion = 0;     // so many levels of recursion does CPython need for what the trace stands for
  pyapi::Ref<> kwNames;  // tuple of keyword names or null
  ir::GradientLimits gradients;  // in what groups they are wanted
};

class CompiledTrace : public std::enable_shared_from_this<CompiledTrace> {
 public:
  explicit CompiledTrace(Recording recording);

  const Recording& recording() const { return recording_; }
  const ir::Trace& trace() const { return recording_.document.trace; }
  GuardProgram& guards() { return guards_; }
  ReplayProgram& replay() { return replay_; }
  SideTraces& sides() { return sides_; }
  // Counts the traces of the process, from 1: what logs and events call this one.
  uint32_t number() const { return number_; }
  // The place of the entry, as a stack text of the event stream; looked up once.
  uint32_t entryText();
  // For the cycle collector: what this trace and its side traces hold.
  int traverse(visitproc visit, void* arg) const;

  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> sideExits{0};
  std::atomic<bool> dead{
      false};  // invalidated: an object that it needs has died, or an internal check failed

 private:
  Recording recording_;
  GuardProgram guards_;
  ReplayProgram replay_;
  SideTraces sides_;
  const uint32_t number_;
  uint32_t entryText_ = 0;
};

}  // namespace kintsugi::runtime
