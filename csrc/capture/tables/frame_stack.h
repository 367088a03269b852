// The frames that are being recorded, and the innermost one that runs.
//
// Owns the shadow frames that run. A frame that is left is handed to the caller (a generator's frame goes
// back to its Virtual). A frame knows its caller, so the innermost one is the head of a chain. A suspended
// generator is in no chain. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   frames.enter(std::move(frame));
//   std::unique_ptr<ShadowFrame> left = frames.leave(*frames.current());
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "capture/shadow.h"
#include "support/check.h"

namespace kintsugi::capture {

class FrameStack {
 public:
  ShadowFrame* current() const { return current_; }  // null: none runs
  void setCurrent(ShadowFrame* frame) { current_ = frame; }
  const std::vector<std::unique_ptr<ShadowFrame>>& all() const { return frames_; }

  void add(std::unique_ptr<ShadowFrame> frame) { frames_.push_back(std::move(frame)); }
  ShadowFrame& enter(std::unique_ptr<ShadowFrame> frame) {
    KINTSUGI_CHECK(frame, "no frame is entered");
    current_ = frame.get();
    add(std::move(frame));
    return *current_;
  }
  // Removes a frame; its caller becomes the current one. Returns null if the frame is not among these.
  std::unique_ptr<ShadowFrame> leave(ShadowFrame& frame) {
    current_ = frame.caller;
    for (size_t i = frames_.size(); i-- > 0;) {
      if (frames_[i].get() != &frame) continue;
      std::unique_ptr<ShadowFrame> left = std::move(frames_[i]);
      frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(i));
      return left;
    }
    return nullptr;
  }

 private:
  std::vector<std::unique_ptr<ShadowFrame>> frames_;
  ShadowFrame* current_ = nullptr;
};

}  // namespace kintsugi::capture
