// A finished recording with everything that running it needs: the trace, its guards, and the Python objects
// that its constants stand for. The one packet from the recorder to the runtime: the recorder fills it, the
// driver completes it, and a runtime::CompiledTrace keeps it. A side trace begins with a look at its
// parent's.
//
// Ownership: owns all that it holds; moved, never copied. Threads: constant once it is installed. The GIL is
// needed to free it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diag/diagnostic.h"
#include "guard/document.h"
#include "ir/segments.h"
#include "pyapi/ref.h"
#include "torchapi/global_state.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::recording {

struct Recording {
  guard::Document document;
  std::vector<pyapi::Ref<>> consts;                        // by ConstId
  std::vector<torchapi::GlobalState> globalStates;         // by state number
  std::vector<torchapi::StateAfterCall> statesAfterCalls;  // calls
  // Places where the compiled graph is split, for explain(): opaque steps and refused mendings.
  std::vector<diag::Diagnostic> breaks;
  std::vector<uint64_t> sourceHashes;  // by SourceId: of the path
  std::vector<torchapi::MetaLevel>
      metaLevels;  // by ValueId, from its definition on: how much of its metadata is the same in each run
  // A side trace: the instructions before `start` are its parent's and are never run, nor are the guard
  // blocks before `firstBlock`.
  uint32_t start = 0;
  guard::BlockId firstBlock = 0;
  size_t argCount = 0;   // positional arguments of the entry call
  int recursion = 0;     // so many levels of recursion does CPython need for what the trace stands for
  pyapi::Ref<> kwNames;  // tuple of keyword names or null
  ir::GradientLimits gradients;  // in what groups they are wanted
  // Some guards were taken out, at the user's wish: inputs may be of another kind than promised. The guards
  // on tensors among them are kept here: what is compiled for such tensors must not run for others.
  bool filtered = false;
  std::vector<guard::Guard> unguarded;
  // What the recording has seen of this process that another one has not (the order of a set, say); empty:
  // nothing, so that a package may hold it.
  std::string bound;
};

}  // namespace kintsugi::recording
