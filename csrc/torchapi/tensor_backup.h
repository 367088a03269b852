// What a tensor was before a graph that writes to it, so that the graph can be rolled back.
//
//   TensorBackup before(x, true);       a copy of its elements
//   ... x.index_add_(...) raises behind good indices, which it has added ...
//   before.restore()                    x has its old elements and version, and hangs on its old grad_fn
//
// Ownership: keeps the tensor and the copy alive. Threads: one at a time. The GIL is not needed.
// Invalidation: a tensor whose sizes, strides or storage have changed since can't be restored.
#pragma once

#include <memory>

namespace kintsugi::torchapi {

class TensorBackup {
 public:
  // `impl`: a TensorImpl. Without `elements`, only what autograd knows of it is kept.
  TensorBackup(void* impl, bool elements);
  ~TensorBackup();
  TensorBackup(TensorBackup&& other) noexcept;
  // False: it can't be restored, and nothing was done.
  bool restore() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// May the two TensorImpls have elements in common?
bool mayOverlap(const void* a, const void* b);

}  // namespace kintsugi::torchapi
