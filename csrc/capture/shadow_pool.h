// Memory for the small lists and objects of recordings: shadows, arguments, virtual objects, frames.
//
// A recording takes and gives back tens of thousands of pieces of some 16 to 256 bytes. malloc() takes about
// a hundred instructions for each of them, and as many when it is freed; a list of free pieces for each size
// takes ten. Pieces are cut from blocks; the blocks are freed when no piece is out, which is when no
// recording runs. Larger pieces come from operator new. Sanitizers and debug builds get all pieces from
// operator new, so that they see each one.
//
// Threads: the GIL is held, as wherever shadows are. Invalidation: none. Example:
//
//   PooledVector<Shadow> parts;            // a std::vector
//   struct Virtual : Pooled { ... };        // `new Virtual` is a piece
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

namespace kintsugi::capture {

class ShadowPool {
 public:
  static constexpr size_t kStep = 16;       // sizes of pieces are multiples of it: what malloc() aligns to
  static constexpr size_t kLargest = 256;   // larger ones are rare, and their cost is that of filling them
  static constexpr size_t kBlock = 16'384;  // larger: fewer calls of malloc(), more memory for a small trace

  constexpr ShadowPool() = default;
  ShadowPool(const ShadowPool&) = delete;

  void* take(size_t bytes) {
    if (bytes > kLargest || kEachFromNew) return ::operator new(bytes);
    ++out_;
    Piece*& first = free_[classOf(bytes)];
    if (first == nullptr) [[unlikely]]
      return cut(bytes);
    Piece* piece = first;
    first = piece->next;
    return piece;
  }
  void give(void* memory, size_t bytes) {
    if (bytes > kLargest || kEachFromNew) return ::operator delete(memory, bytes);
    Piece*& first = free_[classOf(bytes)];
    first = new (memory) Piece{first};
    if (--out_ == 0) [[unlikely]]
      releaseBlocks();
  }

  size_t out() const { return out_; }        // pieces that are in use
  size_t blocks() const { return blocks_; }  // blocks that are kept for them

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(KINTSUGI_DEBUG)
  static constexpr bool kEachFromNew = true;
#else
  static constexpr bool kEachFromNew = false;
#endif
  struct Piece {
    Piece* next;
  };
  struct Block {
    Block* older;
    alignas(kStep) std::byte memory[kBlock];
  };
  static constexpr size_t classOf(size_t bytes) { return (bytes + kStep - 1) / kStep; }

  void* cut(size_t bytes);
  void releaseBlocks();

  std::array<Piece*, kLargest / kStep + 1> free_{};
  Block* newest_ = nullptr;
  std::byte* next_ = nullptr;  // what is left of the newest block
  std::byte* end_ = nullptr;
  size_t out_ = 0;
  size_t blocks_ = 0;
};

// It has nothing to destroy: objects of the interpreter may hold virtual objects until the process ends.
static_assert(std::is_trivially_destructible_v<ShadowPool>);
extern constinit ShadowPool shadowPool;

template <typename T>
struct PoolAllocator {
  using value_type = T;
  static_assert(alignof(T) <= ShadowPool::kStep);

  PoolAllocator() = default;
  template <typename Other>
  PoolAllocator(const PoolAllocator<Other>& /*other*/) {}
  T* allocate(size_t count) { return static_cast<T*>(shadowPool.take(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) { shadowPool.give(memory, count * sizeof(T)); }
  bool operator==(const PoolAllocator& /*other*/) const { return true; }
};

template <typename T>
using PooledVector = std::vector<T, PoolAllocator<T>>;

// Objects that `new` makes in the pool.
struct Pooled {
  static void* operator new(size_t bytes) { return shadowPool.take(bytes); }
  static void operator delete(void* memory, size_t bytes) { shadowPool.give(memory, bytes); }
};

}  // namespace kintsugi::capture
