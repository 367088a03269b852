// functorch's transforms that are active while recording, and the parts of them that the trace leaves out.
//
// A replay enters no transform (calls/transforms.cc). So the trace leaves out what torch's code changes only
// while a transform is active: counts in global variables, and tensors of the transform that
// functional_call() puts into a module. When torch's code returns, each such place must hold what it held
// before; otherwise the recording ends. In between nothing can leave the trace, so nobody sees the
// difference.
//
// Ownership: borrows the frames. Owned by the Recorder; the recording thread, GIL held.
// Example: `if (transforms.enter(true)) ...`, and TransientStores for what torch's code stores meanwhile.
#pragma once

#include <optional>
#include <vector>

#include "capture/roles.h"
#include "capture/shadow.h"
#include "capture/tables/frame_stack.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

class Transforms {
 public:
  explicit Transforms(const FrameStack& frames) : frames_(frames) {}

  // Called when torch's code in the current frame enters a transform. `gradMode`: operators inside it may
  // track gradients. False: the code is not torch's.
  bool enter(bool gradMode);
  void leave();
  bool active() const { return !gradModes_.empty(); }
  // True if the current frame, or a caller of it, is torch's code that has entered a transform.
  bool isInside() const;
  // The grad mode of the operators below all transforms, if the program's is `mode`.
  bool gradModeBelow(bool mode) const;
  // True if the current frame's code counts transforms in its global variables.
  bool countsTransforms() const;

 private:
  const FrameStack& frames_;
  std::vector<bool> gradModes_;  // of the active transforms
};

// The stores of a recording that a transform leaves out.
class TransientStores final : public StoreFilter {
 public:
  struct Roles {
    BreakSink& breaks;
    SourceGuards& guards;
    ContainerReads& reads;
  };
  TransientStores(const Roles& roles, const Transforms& transforms)
      : roles_(roles), transforms_(transforms) {}

  std::optional<bool> storeTransient(PyObject* dict, PyObject* key, Shadow value, PyObject* real) override {
    if (!isTransient(dict, key, real)) return std::nullopt;
    return store(dict, key, value, real);
  }
  // Leaves the write out. A guard pins the value that was there. False: the recording has ended.
  bool store(PyObject* dict, PyObject* key, Shadow value, PyObject* real);
  // A frame was left. If it was the outermost one that has entered a transform, everything must be as it was.
  void frameExited(const ShadowFrame& frame);

 private:
  struct Place {
    pyapi::Ref<> dict;
    pyapi::Ref<> key;
    pyapi::Ref<> before;
  };
  // True if `dict[key] = object` is left out: `object` is a tensor of a transform, or the value from before
  // one.
  bool isTransient(PyObject* dict, PyObject* key, PyObject* object) const;
  bool has(PyObject* dict, PyObject* key) const;

  const Roles roles_;
  const Transforms& transforms_;
  std::vector<Place> places_;
};

}  // namespace kintsugi::capture
