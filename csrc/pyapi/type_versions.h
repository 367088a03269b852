// Gives classes their old versions back if they were changed for a while and then restored.
//
// torch's tracers put methods of their own into torch.nn.Module and remove them again. After that, every
// module class has a new version, though look-ups find the same as before. Guards on versions would fail for
// good. A version only says what look-ups on the type find, so the old one is right again. Threads: the GIL
// is needed.
#pragma once

#include <unordered_map>

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

class TypeVersions {
 public:
  explicit TypeVersions(
      PyTypeObject* root);  // remembers the type, its subclasses, and what these inherit from
  void restore();           // gives versions back if neither the type nor what it inherits from differs now

 private:
  struct Kept {
    Ref<> type;
    Ref<> order;  // the types that look-ups search
    unsigned version = 0;
    uint64_t dictVersion = 0;
    Ref<> contents;  // of the root, which is the only type that may differ in between
  };
  void remember(PyTypeObject* type);
  bool unchanged(const Kept& kept) const;

  std::unordered_map<PyTypeObject*, Kept> kept_;
};

}  // namespace kintsugi::pyapi
