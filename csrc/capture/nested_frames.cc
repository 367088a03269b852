#include "capture/nested_frames.h"

#include "capture/recorder_tables.h"

namespace kintsugi::capture {

NestedFrames::NestedFrames(RecordContext& rec)
    : rec_(rec), frame_(rec.tables.frames.current()), saved_(rec.instruction.save()) {}

NestedFrames::~NestedFrames() {
  rec_.tables.frames.setCurrent(frame_);
  rec_.instruction.restore(saved_);
}

}  // namespace kintsugi::capture
