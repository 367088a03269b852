#include "capture/transforms.h"

#include <algorithm>

#include "pyapi/known_objects.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

namespace {

bool isOfTransforms(PyCodeObject* code) {
  return pyapi::isKnownCode(code, torchapi::CodeFamily::kTransforms);
}

}  // namespace

bool Transforms::enter(bool gradMode) {
  ShadowFrame* current = frames_.current();
  if (current == nullptr || !isOfTransforms(current->code)) return false;
  gradModes_.push_back(gradMode);
  for (ShadowFrame* frame = current; frame != nullptr && frame->caller != nullptr; frame = frame->caller) {
    const bool manager = pyapi::isKnownCode(frame->code, pyapi::CodeFamily::kContextManagers);
    if (!isOfTransforms(frame->code) && !manager) break;
    frame->transform = isOfTransforms(frame->code);
    frame->rebuildable = false;
  }
  return true;
}

void Transforms::leave() {
  if (!gradModes_.empty()) gradModes_.pop_back();
}

bool Transforms::isInside() const {
  for (const ShadowFrame* frame = frames_.current(); frame != nullptr; frame = frame->caller) {
    if (frame->transform) return true;
  }
  return false;
}

bool Transforms::gradModeBelow(bool mode) const {
  return mode && std::find(gradModes_.begin(), gradModes_.end(), false) == gradModes_.end();
}

bool Transforms::countsTransforms() const {
  return frames_.current() != nullptr && isOfTransforms(frames_.current()->code) && isInside();
}

}  // namespace kintsugi::capture
