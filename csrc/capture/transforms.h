// functorch's transforms that are active while recording, and the parts of them that the trace leaves out.
//
// A replay enters no transform (calls/transforms.cc). So the trace leaves out what torch's code changes only
// while a transform is active: counts in global variables, and tensors of the transform that
// functional_call() puts into a module. When torch's code returns, each such place must hold what it held
// before; otherwise the recording ends. In between nothing can leave the trace, so nobody sees the
// difference.
// One of the tables of a recording. Thread: the recording one, GIL held.
// Example: `if (transforms.isTransient(rec, dict, key, value)) transforms.store(rec, dict, key, shadow,
// value)`.
#pragma once

#include <optional>
#include <vector>

#include "capture/roles.h"
#include "capture/shadow.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

struct RecordContext;

class Transforms {
 public:
  // Called when torch's code in the current frame enters a transform. `gradMode`: operators inside it may
  // track gradients. False: the code is not torch's.
  bool enter(RecordContext& rec, bool gradMode);
  void leave();
  // True if the current frame, or a caller of it, is torch's code that has entered a transform.
  static bool isInside(RecordContext& rec);
  // The grad mode of the operators below all transforms, if the program's is `mode`.
  bool gradModeBelow(bool mode) const;

  // True if the current frame's code counts transforms in its global variables.
  static bool countsTransforms(RecordContext& rec);
  // True if `dict[key] = object` is left out: `object` is a tensor of a transform, or the value from before
  // one.
  bool isTransient(RecordContext& rec, PyObject* dict, PyObject* key, PyObject* object) const;
  // Leaves the write out. A guard pins the value that was there. False: the recording has ended.
  bool store(RecordContext& rec, PyObject* dict, PyObject* key, Shadow value, PyObject* real);
  // A frame was left. If it was the outermost one that has entered a transform, everything must be as it was.
  void frameExited(RecordContext& rec, const ShadowFrame& frame);

 private:
  struct Place {
    pyapi::Ref<> dict;
    pyapi::Ref<> key;
    pyapi::Ref<> before;
  };
  bool has(PyObject* dict, PyObject* key) const;

  std::vector<bool> gradModes_;  // of the active transforms
  std::vector<Place> places_;
};

// The stores of a recording that a transform leaves out.
class TransientStores final : public StoreFilter {
 public:
  TransientStores(RecordContext& rec, Transforms& transforms) : rec_(rec), transforms_(transforms) {}
  std::optional<bool> storeTransient(PyObject* dict, PyObject* key, Shadow value, PyObject* real) override {
    if (!transforms_.isTransient(rec_, dict, key, real)) return std::nullopt;
    return transforms_.store(rec_, dict, key, value, real);
  }

 private:
  RecordContext& rec_;
  Transforms& transforms_;
};

}  // namespace kintsugi::capture
