// Classes that are changed for a while and put back as they were get their versions back.
//
// torch's tracers put methods of their own into torch.nn.Module and take them out again. Every version of
// every module class is a new one then, though look-ups find what they found before: guards on them would
// fail for good. A version says what look-ups on the type find, so the old one is true again. Threads: the
// GIL is needed.
#pragma once

#include <unordered_map>

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

class TypeVersions {
 public:
  explicit TypeVersions(
      PyTypeObject* root);  // remembers the type, its subclasses, and what these inherit from
  void restore();  // gives versions back where neither the type nor what it inherits from differs now

 private:
  struct Kept {
    Ref<> type;
    Ref<> order;  // the types that look-ups go through
    unsigned version = 0;
    uint64_t dictVersion = 0;
    Ref<> contents;  // of the root alone, which may differ in between
  };
  void remember(PyTypeObject* type);
  bool unchanged(const Kept& kept) const;

  std::unordered_map<PyTypeObject*, Kept> kept_;
};

}  // namespace kintsugi::pyapi
