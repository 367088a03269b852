#include "capture/nested_frames.h"

#include "capture/recorder_tables.h"

namespace kintsugi::capture {

NestedFrames::NestedFrames(FrameStack& frames, CurrentInstruction& instruction)
    : frames_(frames), instruction_(instruction), frame_(frames.current()), saved_(instruction.save()) {}

NestedFrames::NestedFrames(RecordContext& rec) : NestedFrames(rec.tables.frames, rec.instruction) {}

NestedFrames::~NestedFrames() {
  frames_.setCurrent(frame_);
  instruction_.restore(saved_);
}

}  // namespace kintsugi::capture
