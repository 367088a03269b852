// What running an operator does besides making results, from its schema and tags; and what undoing it takes.
//
// Threads: any; the GIL is not needed. No state of its own. Invalidation: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace kintsugi::torchapi {

struct OpEffects {
  bool known = false;            // there is such an operator
  bool dynamicSizes = false;     // the sizes of its results depend on data
  bool likelySizes = false;      // nothing says that they do, nor that they do not
  bool sizesFromMask = false;    // ... if an index is a mask
  bool writes = false;           // to its arguments
  bool writesUnseen = false;     // ... in ways that version counters may not show; or to other processes
  bool collective = false;       // exchanges data with other processes
  bool random = false;           // draws random numbers
  bool changesMetadata = false;  // makes a tensor another one: sizes, strides, storage, requires_grad
  bool mixesLists = false;       // returns a list of tensors among other results
  bool freshResults = false;     // they share no memory with the arguments
};
OpEffects opEffects(std::string_view name);

// Of this thread.
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
