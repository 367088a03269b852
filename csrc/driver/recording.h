// Running one call under a Recorder: the frame hook's side of a recording.
//
// Threads: a recording belongs to one thread; others run as if there were none (the hook passes their frames
// on). The GIL is needed. Ownership: nothing outlives record().
#pragma once

#include <functional>
#include <memory>

#include "capture/recorder.h"
#include "capture/side_start.h"
#include "pyapi/arguments.h"
#include "runtime/frame_rebuild.h"

namespace kintsugi::driver {

struct RecordedCall {
  PyObject* result = nullptr;  // of the call itself (new reference); null: the user's exception is pending
  std::unique_ptr<capture::CaptureResult> capture;  // null: recording was not possible at all
};

// Calls `function`, recording it.
RecordedCall record(const capture::RecorderOptions& options, PyObject* function,
                    const pyapi::Arguments& args);

// Goes on with the frames of a side exit, recording them. `begun` is called when `start` is no longer needed:
// whatever else holds objects of the frames has to let them go, as the program may drop them.
RecordedCall recordSide(const capture::RecorderOptions& options, const capture::SideStart& start,
                        std::vector<runtime::FrameImage> images, const std::function<void()>& begun);

// Is a recording under way on this thread?
bool isRecording();

}  // namespace kintsugi::driver
