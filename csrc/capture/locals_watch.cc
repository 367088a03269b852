#include "capture/locals_watch.h"

#include <algorithm>

#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/frame_locals.h"

namespace kintsugi::capture {

namespace {

PyObject* contentOf(PyObject* object) {
  return object != nullptr && PyCell_Check(object) ? PyCell_GET(object) : nullptr;
}

}  // namespace

LocalsWatch::LocalsWatch(const FrameStack& frames, const VirtualTable& virtuals) {
  if (!pyapi::localsAreWritable()) return;
  for (const auto& frame : frames.all()) {
    if (frame->act == nullptr || frame->act->frame == nullptr) continue;
    pyapi::Frame* running = frame->act->frame;
    for (size_t i = 0; i < frame->locals.size(); ++i) {
      PyObject* object = pyapi::localAt(running, static_cast<int>(i));
      const Shadow shadow = frame->locals[i];
      const bool ours = shadow.isVirtual() && virtuals[shadow].value == ir::kNone;
      slots_.push_back({running, static_cast<int>(i), object, ours ? contentOf(object) : nullptr});
    }
  }
}

bool LocalsWatch::changed() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return pyapi::localAt(slot.frame, slot.index) != slot.object ||
           (slot.content != nullptr && contentOf(slot.object) != slot.content);
  });
}

}  // namespace kintsugi::capture
