// Frames that are about to be entered, and what the ones before them have given.
//
// A handler that knows which Python function its instruction calls announces the frame; when CPython enters
// it, the announcement says what its arguments are. Where C code calls several functions in turn (the
// iterators of zip()), the later ones are announced too: each waits for the return of the one before, and the
// results are collected. Only one instruction's frames are expected at a time, but those of an instruction
// that waits stay while inner frames run (`owner`).
//
// Owned by the Recorder; the recording thread, GIL held. Announced arguments are borrowed from the value
// stack. Example:
//
//   expected.expect(pending, frames.current());
//   ... CPython enters the frame: expected.entered(frame) ...
//   ... it returns: expected.setResult(shadow); expected.left(frame, Flow::kReturn, false) ...
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "capture/call_context.h"

namespace kintsugi::capture {

class ExpectedFrames {
 public:
  // Forgets what was announced before, and its results, unless an announced frame is running.
  void expect(PendingFrame pending, const ShadowFrame* current);
  void expectNext(PendingFrame pending) { later_.push_back(std::move(pending)); }
  void cancel() { pending_.active = false; }
  PendingFrame& pending() { return pending_; }
  const PendingFrame& pending() const { return pending_; }
  bool isExpected(PyCodeObject* code) const {
    return pending_.active && pending_.code == reinterpret_cast<PyObject*>(code);
  }
  bool isEntered(const ShadowFrame* current) const;  // the frame that later ones wait for, or one below it

  // The announced frame begins.
  void entered(ShadowFrame& frame);
  // A frame was left. True: a later one is pending now.
  bool left(const ShadowFrame& frame, Flow how, bool ofGenerator);

  // What the frame that was left last has given; null: nothing yet.
  Shadow result() const { return result_; }
  void setResult(Shadow shadow) { result_ = shadow; }
  const std::vector<Shadow>& results() const { return results_; }  // of those that a later one waited for
  bool raised() const { return raised_; }      // the frame that was left last was left by an exception
  bool gaveItem() const { return gaveItem_; }  // it yielded, or is a function's and returned
  // C code may still ask for what it was given.
  bool isIdle() const { return collected_.empty() && results_.empty() && later_.empty(); }

  // A generator function was called: its frame waits for the object that CPython makes.
  void setGeneratorFrame(std::unique_ptr<ShadowFrame> frame) { generatorFrame_ = std::move(frame); }
  std::unique_ptr<ShadowFrame> takeGeneratorFrame() { return std::move(generatorFrame_); }

  // C code is about to consume a generator whole: all that it gives is collected. They nest.
  void collectFrom(Virtual& generator) { collected_.push_back({&generator, {}}); }
  Virtual* collected() const { return collected_.empty() ? nullptr : collected_.back().generator; }
  void addItem(Shadow item) { collected_.back().items.push_back(item); }
  std::vector<Shadow> takeItems();

 private:
  struct Collected {
    Virtual* generator;
    std::vector<Shadow> items;
  };

  PendingFrame pending_;
  std::deque<PendingFrame> later_;
  const ShadowFrame* owner_ = nullptr;  // the frame of pending_, while later ones wait for its return
  Shadow result_;
  std::vector<Shadow> results_;
  std::unique_ptr<ShadowFrame> generatorFrame_;
  std::vector<Collected> collected_;  // innermost last
  bool raised_ = false;
  bool gaveItem_ = false;
};

}  // namespace kintsugi::capture
