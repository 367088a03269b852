// Guards made executable: a structural program (walk the sources, compare) and a memo of its last success (a
// flat list of pointer, dict-version, type-version and tensor compares), which answers nearly every call.
//
// Idea of the memo: when the structural program has passed, every object that it walked over is known. If an
// argument is the same object, its type the same, its dict has the same version tag, then every entry of that
// dict is the same object and *alive* (the dict holds it); by induction the whole tree below is unchanged
// where all its dict versions, list elements and type versions are. Version tags are unique in the process,
// so a reused address can't fool it. Pointer equality alone is trusted only for objects that we own a
// reference to. Tensors' metadata is compared each time. When the memo misses, the structural program
// decides, and a pass refreshes the memo. Never weaker than the program.
//
// Threads: check() needs the GIL; the memo is rewritten only there. Invalidation: none; a dead object makes
// it fail.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "diag/diagnostic.h"
#include "guard/guard.h"
#include "pyapi/arguments.h"
#include "pyapi/ref.h"
#include "torchapi/global_state.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::ir {
struct Trace;
}

namespace kintsugi::recording {
struct Recording;
}

namespace kintsugi::runtime {

// A guard that fails for nothing but another size, number, text or length.
struct Variation {
  uint32_t guard = 0;
  uint64_t dims = 0;     // of a tensor, as bits; 0: another thing
  bool patient = false;  // a text or a length: of interest when it has varied often
};

// Which guard failed, for the recompile report. Strings are made only on request.
struct GuardFailure {
  uint32_t guard = ir::kNone;  // index into GuardSet::guards; kNone: the call's shape
  std::string expected;
  std::string seen;
  std::vector<Variation> variations;  // of all guards of the block
  // Attributes of classes that are others now, and are neither functions nor what else is bound.
  std::vector<std::pair<PyTypeObject*, pyapi::Ref<>>> classAttributes;
};

// The objects that the sources were resolved to, by SourceId. Borrowed while the guards' owners hold them:
// entry sources for the duration of the call (the caller holds the arguments; `pin()` takes references where
// a step may drop them).
using SlotArray = PyObject**;

// Which guards a program has; empty: all.
using GuardChoice = std::function<bool(const guard::Guard& guard)>;

class GuardProgram {
 public:
  // Borrows the recording: constants, metadata and names.
  explicit GuardProgram(const recording::Recording& recording, const GuardChoice& chosen = {});
  ~GuardProgram();
  GuardProgram(GuardProgram&&) noexcept;

  // Checks block `block`. `args`: of the entry call; a guard on an argument that it
  // lacks fails. `slots`: sources.size() entries; those of
  // the block that the trace or a later block refers to are written (borrowed; all of them for a trace
  // without instructions). `values`: objects of the opaque steps by ValueId (block > 0). Block k > 0 reads
  // the slots of earlier blocks that it starts from.
  bool check(guard::BlockId block, const pyapi::Arguments& args, PyObject* const* values, SlotArray slots);
  // The same walk, telling which guard fails first. Never runs Python code; clears any lookup error.
  // `slots`: as for check(), needed for block > 0.
  GuardFailure explainFailure(guard::BlockId block, const pyapi::Arguments& args, PyObject* const* values,
                              SlotArray slots = nullptr);

  // Classes count as changed since `other`, a program of the same recording, was checked last. A new program
  // takes them for what they are when it is made.
  void takeBaselines(const GuardProgram& other);

  // The sources whose slots later blocks start from. A run has to hold references to these across opaque
  // steps.
  const std::vector<ir::SourceId>& pinnedSources() const;

  size_t guardCount() const;
  size_t wordCount() const;  // compares of the fast path, over all blocks
  // For the cycle collector: what the memo keeps.
  int traverse(visitproc visit, void* arg) const;
  uint64_t memoHits() const;
  uint64_t memoMisses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::runtime
