// A Python object that is found or made when it is first used, and never freed, such as a function of a
// module.
//
// The initializer of a function's `static` runs under a lock of C++. Python code in it may release the GIL to
// a thread that then waits for that lock while it holds the GIL, so both wait for ever. Here there is no
// lock. Two threads may both make the value; the first that is ready wins, and the other's is dropped (one
// reference to it stays). scripts/check_statics.py refuses Python code in initializers.
//
// Ownership: holds what it was given for good. Threads: the GIL is needed. Invalidation: none. Example:
//   static constinit Lazy<PyObject*> module;
//   return module.get([] { return pyapi::importModule("enum"); });
#pragma once

#include <type_traits>

namespace kintsugi::pyapi {

template <typename T>
class Lazy {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  template <typename Make>
  T get(Make&& make) {
    if (!made_) [[unlikely]] {
      const T value = make();
      if (!made_) {
        value_ = value;
        made_ = true;
      }
    }
    return value_;
  }

 private:
  T value_{};
  bool made_ = false;
};

}  // namespace kintsugi::pyapi
