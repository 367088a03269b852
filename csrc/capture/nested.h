// The instruction under way goes on after other frames have run inside it: what the recorder knows of it is
// kept while one lives. Whoever calls Python code in the middle of a handler, before the instruction itself,
// needs one.
//
//   pyapi::Ref<> list;
//   {
//     const Nested nested(rec);
//     list = pyapi::steal(PySequence_List(generator));
//   }
//
// Thread: the recording one, GIL held.
#pragma once

#include "capture/recorder.h"

namespace kintsugi::capture {

class Nested {
 public:
  explicit Nested(Recorder& rec)
      : state_(rec.known()),
        frame_(state_.current_),
        instr_(state_.instr_),
        depth_(state_.depthBefore_),
        executed_(state_.executed_),
        executedFlow_(state_.executedFlow_) {}
  ~Nested() {
    state_.current_ = frame_;
    state_.instr_ = instr_;
    state_.depthBefore_ = depth_;
    state_.executed_ = executed_;
    state_.executedFlow_ = executedFlow_;
    state_.cachedState_ = ir::kNone;
  }
  Nested(const Nested&) = delete;

 private:
  RecorderState& state_;
  ShadowFrame* frame_;
  const Instr* instr_;
  size_t depth_;
  bool executed_;
  Flow executedFlow_;
};

}  // namespace kintsugi::capture
