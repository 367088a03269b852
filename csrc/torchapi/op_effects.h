// What an operator does besides making results, found from its schema and tags; and what is needed to undo
// it.
//
//   aten.add_.Tensor      writes to its first argument
//   aten.rand.default     draws random numbers: undone by restoring the generator (GeneratorState)
//
// Threads: any; the GIL is not needed. No state of its own. Invalidation: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ir/trace.h"

namespace kintsugi::torchapi {

struct OpEffects {
  bool known = false;            // there is such an operator
  bool dynamicSizes = false;     // the sizes of its results depend on data
  bool likelySizes = false;      // its declaration does not say whether its sizes depend on data
  bool sizesFromMask = false;    // the sizes depend on data if an index is a mask
  bool writes = false;           // writes to its arguments
  bool writesFirst = false;      // writes to its first argument alone, by its schema
  bool writesUnseen = false;     // writes in a way that version counters may not show, or to other processes
  bool collective = false;       // exchanges data with other processes
  bool random = false;           // draws random numbers
  bool changesMetadata = false;  // changes sizes, strides, storage or requires_grad of a tensor
  bool mixesLists = false;       // returns a list of tensors among other results
  bool countOfSizes = false;     // ... or a list alone, which may be as long as sizes say
  bool mayRunPython = false;     // an operator of a library: its kernel may be Python code
  bool views = false;            // its schema says that it only makes views
  bool freshResults = false;     // results share no memory with the arguments
};
OpEffects opEffects(std::string_view name);

// Does an instruction of the trace do nothing but make results? The second one may draw random numbers too.
bool changesNothing(const ir::Trace& trace, const ir::Instruction& ins);
bool makesOrDraws(const ir::Trace& trace, const ir::Instruction& ins);

// The grad mode of this thread.
bool gradMode();
void setGradMode(bool enabled);

// The version counter of a tensor, which counts the writes to its memory. False: the tensor has none.
bool tensorVersion(const void* impl, uint64_t& version);

// The state of the default generator, to draw the same random numbers again.
class GeneratorState {
 public:
  GeneratorState();  // saves it
  ~GeneratorState();
  void restore() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::torchapi
