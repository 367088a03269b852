// Python frames that the recorder expects to be entered next, and the results of those that have returned.
//
// A handler that knows which Python function its instruction calls announces the frame. When CPython enters
// the frame, the announcement says what the arguments are. C code may call several functions in turn, as
// zip() does with its iterators. Then the later frames are announced too: each waits for the return of the
// one before, and the results are collected. Frames are expected for one instruction at a time. While an
// instruction waits for an inner frame (`owner_`), its later announcements stay.
//
// Owned by the Recorder; the recording thread, GIL held. Announced arguments are borrowed from the value
// stack. Example:
//
//   expected.expect(pending, frames.current());
//   ... CPython enters the frame: expected.entered(frame) ...
//   ... it returns: expected.setResult(shadow); expected.frameExited(frame, Flow::kReturn, false) ...
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "capture/call_context.h"
#include "support/check.h"

namespace kintsugi::capture {

class ExpectedFrames {
 public:
  // Replaces the earlier announcement. Results and later announcements go too, unless their frame is running.
  void expect(PendingFrame pending, const ShadowFrame* current);
  void expectNext(PendingFrame pending) { later_.push_back(std::move(pending)); }
  void cancel() { pending_.active = false; }
  PendingFrame& pending() { return pending_; }
  const PendingFrame& pending() const { return pending_; }
  bool isExpected(PyCodeObject* code) const {
    return pending_.active && pending_.code == reinterpret_cast<PyObject*>(code);
  }
  // `current` is the frame that later ones wait for, or a callee.
  bool isEntered(const ShadowFrame* current) const;

  // The announced frame begins.
  void entered(ShadowFrame& frame);
  // A frame was left. Returns true if a later one is pending now.
  bool frameExited(const ShadowFrame& frame, Flow how, bool ofGenerator);

  // The result of the frame that was left last; null: none yet.
  Shadow result() const { return result_; }
  void setResult(Shadow shadow) { result_ = shadow; }
  // Of the frames that a later one waited for.
  const Shadows& results() const { return results_; }
  bool raised() const { return raised_; }      // the frame that was left last was left by an exception
  bool gaveItem() const { return gaveItem_; }  // it yielded an item, or it is a function's and returned
  // True if no C code can ask for results any more.
  bool isIdle() const { return collected_.empty() && results_.empty() && later_.empty(); }

  // A generator function was called. Its frame waits here for the generator object that CPython makes.
  void setGeneratorFrame(std::unique_ptr<ShadowFrame> frame) { generatorFrame_ = std::move(frame); }
  std::unique_ptr<ShadowFrame> takeGeneratorFrame() { return std::move(generatorFrame_); }

  // C code is about to consume a whole generator, so all of its items are collected. Such calls may nest.
  void collectFrom(Virtual& generator) { collected_.push_back({&generator, {}}); }
  Virtual* collected() const { return collected_.empty() ? nullptr : collected_.back().generator; }
  void addItem(Shadow item) {
    KINTSUGI_CHECK(!collected_.empty(), "an item of a generator that nobody collects from");
    collected_.back().items.push_back(item);
  }
  Shadows takeItems();

 private:
  struct Collected {
    Virtual* generator;
    Shadows items;
  };

  PendingFrame pending_;
  std::deque<PendingFrame> later_;
  const ShadowFrame* owner_ = nullptr;  // the entered frame for whose return `later_` waits
  Shadow result_;
  Shadows results_;
  std::unique_ptr<ShadowFrame> generatorFrame_;
  std::vector<Collected> collected_;  // innermost last
  bool raised_ = false;
  bool gaveItem_ = false;
};

}  // namespace kintsugi::capture
