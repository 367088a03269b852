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

#include "capture/record_context.h"

namespace kintsugi::capture {

class NestedFrames {
 public:
  explicit NestedFrames(RecordContext& rec);
  ~NestedFrames();
  NestedFrames(const NestedFrames&) = delete;

 private:
  RecordContext& rec_;
  ShadowFrame* frame_;
  CurrentInstruction::Saved saved_;
};

}  // namespace kintsugi::capture
