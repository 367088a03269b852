#include "capture/tables/expected_frames.h"

#include "support/check.h"

namespace kintsugi::capture {

void ExpectedFrames::expect(PendingFrame pending, const ShadowFrame* current) {
  pending_ = std::move(pending);
  pending_.active = true;
  result_ = Shadow::null();
  if (!isEntered(current)) {
    later_.clear();
    results_.clear();
  }
  raised_ = false;
}

bool ExpectedFrames::isEntered(const ShadowFrame* current) const {
  for (const ShadowFrame* frame = current; frame != nullptr; frame = frame->caller) {
    if (frame == owner_) return !later_.empty();
  }
  return false;
}

void ExpectedFrames::entered(ShadowFrame& frame) {
  pending_.active = false;
  if (!later_.empty()) owner_ = &frame;
}

bool ExpectedFrames::frameExited(const ShadowFrame& frame, Flow how, bool ofGenerator) {
  raised_ = how == Flow::kRaise;
  gaveItem_ = how == Flow::kYield || (how == Flow::kReturn && !ofGenerator);
  if (later_.empty() || owner_ != &frame) return false;
  owner_ = nullptr;
  if (how != Flow::kReturn) {
    later_.clear();
    return false;
  }
  results_.push_back(result_);
  pending_ = std::move(later_.front());
  pending_.active = true;
  later_.pop_front();
  return true;
}

Shadows ExpectedFrames::takeItems() {
  KINTSUGI_CHECK(!collected_.empty(), "items of a generator that was not asked for them");
  Shadows items = std::move(collected_.back().items);
  collected_.pop_back();
  return items;
}

}  // namespace kintsugi::capture
