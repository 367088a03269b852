#include "capture/shadow_pool.h"

#include <utility>

namespace kintsugi::capture {

constinit ShadowPool shadowPool;

// What is left of a block that has too little for this piece is lost: less than kLargest of kBlock bytes.
void* ShadowPool::cut(size_t bytes) {
  const size_t size = classOf(bytes) * kStep;
  if (static_cast<size_t>(end_ - next_) < size) {
    auto* block = new Block;
    block->older = std::exchange(newest_, block);
    next_ = block->memory;
    end_ = block->memory + kBlock;
    ++blocks_;
  }
  return std::exchange(next_, next_ + size);
}

// No piece is out. One block is kept, so that single pieces outside of recordings don't ask for one each.
void ShadowPool::releaseBlocks() {
  free_.fill(nullptr);
  while (newest_->older != nullptr) {
    delete std::exchange(newest_, newest_->older);
    --blocks_;
  }
  next_ = newest_->memory;
}

}  // namespace kintsugi::capture
