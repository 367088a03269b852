// Graph breaks of a recording, and the end of the recording.
//
// If something can't be captured, the recording ends, and the call goes on unrecorded. A step is a break
// after which the trace goes on. If breaks are errors, the first one is raised before the next instruction
// (breaks.h says how breaks are shown).
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   rec.abort(diag::Code::KTG0302, {"generator that runs"});
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/capture_result.h"
#include "capture/interpreter.h"
#include "capture/tables/break_log.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "torchapi/op_recorder.h"

namespace kintsugi::capture {

struct RecordContext;

class Breaks final {
 public:
  Breaks(RecordContext& rec, BreakLog& breakLog, FrameStack& frames, CurrentInstruction& instruction,
         torchapi::OpRecorder& ops, const RecorderOptions& options)
      : rec_(rec),
        breakLog_(breakLog),
        frames_(frames),
        instruction_(instruction),
        ops_(ops),
        options_(options) {}

  bool isLive() const { return breakLog_.isLive(); }                // the recording goes on
  void abort(diag::Code code, std::vector<std::string> args = {});  // the call goes on unrecorded
  void noteBreak(diag::Code code, std::vector<std::string> args);   // before the step runs
  Flow raiseAssertion(const std::string& message);  // instead of the instruction; ends the recording
  bool isStrict() const;                            // a break is an error here
  void refuse(const diag::Diagnostic& diagnostic);
  Flow raiseRefused();

 private:
  bool resultUnused() const;

  RecordContext& rec_;
  BreakLog& breakLog_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  torchapi::OpRecorder& ops_;
  const RecorderOptions& options_;
};

}  // namespace kintsugi::capture
