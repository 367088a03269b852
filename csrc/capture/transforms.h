// functorch's transforms that are active while the recorder watches: what of them is not in the trace.
//
// A replay enters no transform (calls/transforms.cc). So what torch's code only does for as long as one is
// active is left out: it keeps count of them in global variables, and functional_call() puts tensors of the
// transform into a module. Each such place holds what it held before, when torch's code returns; where it
// does not, the recording ends. In between nothing can leave the trace, so nobody sees the difference.
//
// One of the tables of a recording. Thread: the recording one, GIL held.
// Example: `if (transforms.isTransient(rec, dict, key, value)) transforms.store(rec, dict, key, shadow)`.
#pragma once

#include <vector>

#include "capture/shadow.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

struct RecordContext;

class Transforms {
 public:
  // Torch's code in the current frame enters one. `gradMode`: may operators below it track gradients? False:
  // the code is not torch's.
  bool enter(RecordContext& rec, bool gradMode);
  void leave();
  // Is the current frame torch's code that has entered one, or below it?
  static bool isInside(RecordContext& rec);
  // The grad mode of the operators below all transforms, where `mode` is the program's.
  bool gradModeBelow(bool mode) const;

  // Does the current frame keep count of transforms in its global variables?
  static bool keepsCount(RecordContext& rec);
  // Is dict[key] = object left out? A tensor of a transform, or what was there before one.
  bool isTransient(RecordContext& rec, PyObject* dict, PyObject* key, PyObject* object) const;
  // Leaves it out; what was there becomes a dependency. False: the recording has ended.
  bool store(RecordContext& rec, PyObject* dict, PyObject* key, Shadow value);
  // A frame has been left: if it was the outermost that has entered a transform, all is to be as it was.
  void left(RecordContext& rec, const ShadowFrame& frame);

 private:
  struct Place {
    pyapi::Ref<> dict;
    pyapi::Ref<> key;
    pyapi::Ref<> before;
  };
  bool has(PyObject* dict, PyObject* key) const;

  std::vector<bool> gradModes_;  // of those that are active
  std::vector<Place> places_;
};

}  // namespace kintsugi::capture
