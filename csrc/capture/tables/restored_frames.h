// The frames of the snapshot that a side trace begins with, innermost first (recorder_restore.cc).
//
// The innermost frame is entered first and runs on. Each outer frame waits for the result of the frame inside
// it. It has a RestoredFrame of its own until then, since CPython has not entered it yet. Owned by the
// Recorder; the recording thread, GIL held. Frames are borrowed from the FrameStack, tensors from the
// snapshot's objects.
// Example: restored.expect(0); ... RestoredFrame* entry = restored.takeExpected();
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>

#include "capture/shadow.h"
#include "support/check.h"

namespace kintsugi::capture {

// `waiting` stands for the call in this frame that has not returned yet.
struct RestoredFrame {
  ShadowFrame* frame = nullptr;
  ir::ReturnAction action = ir::ReturnAction::kPush;  // what it does with the inner frame's result
  Shadow replacement;                                 // see ir::ReturnAction
  Instr waiting;
  Activation waitingAct{};
};

class RestoredFrames {
 public:
  void resize(size_t count) { frames_.resize(count); }
  RestoredFrame& operator[](size_t index) {
    KINTSUGI_CHECK(index < frames_.size(), "restored frame ", index, " of ", frames_.size());
    return frames_[index];
  }
  std::deque<RestoredFrame>& all() { return frames_; }

  // The frame with this index is entered next.
  void expect(size_t index) { next_ = index; }
  bool isExpected() const { return next_.has_value(); }
  size_t takeExpected() {
    KINTSUGI_CHECK(next_, "no restored frame is expected");
    const size_t index = *next_;
    next_.reset();
    return index;
  }

  // Tensors that the side trace begins with. Two values may be the same tensor.
  void addTensor(ir::ValueId value, PyObject* tensor) { tensors_.emplace(value, tensor); }
  bool isTensor(ir::ValueId value, PyObject* tensor) const {
    const auto found = tensors_.find(value);
    return found != tensors_.end() && found->second == tensor;
  }

 private:
  std::deque<RestoredFrame> frames_;
  std::optional<size_t> next_;
  std::unordered_map<ir::ValueId, PyObject*> tensors_;
};

}  // namespace kintsugi::capture
