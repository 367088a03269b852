// Keeps what the recorder knows of the current instruction while other frames run inside it. A handler needs
// one if it calls Python code before the instruction itself is executed.
//
//   pyapi::Ref<> list;
//   {
//     const NestedFrames nested(rec);
//     list = pyapi::steal(PySequence_List(generator));
//   }
//
// Thread: the recording one, GIL held.
#pragma once

#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"

namespace kintsugi::capture {

struct RecordContext;

class NestedFrames {
 public:
  NestedFrames(FrameStack& frames, CurrentInstruction& instruction);
  explicit NestedFrames(RecordContext& rec);  // for handlers and models
  ~NestedFrames();
  NestedFrames(const NestedFrames&) = delete;

 private:
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  ShadowFrame* frame_;
  CurrentInstruction::Saved saved_;
};

}  // namespace kintsugi::capture
