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
#include "capture/roles.h"
#include "capture/tables/break_log.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

class Breaks final : public BreakSink, public BreakErrors {
 public:
  Breaks(OperatorLog& operators, BreakLog& breakLog, FrameStack& frames, CurrentInstruction& instruction,
         const RecorderOptions& options, const VirtualTable& virtuals)
      : operators_(operators),
        breakLog_(breakLog),
        frames_(frames),
        instruction_(instruction),
        options_(options),
        virtuals_(virtuals) {}

  bool isLive() const override { return breakLog_.isLive(); }  // the recording goes on
  void abort(diag::Code code, std::vector<std::string> args = {}) override;
  // The recording has ended for a reason that concerns the whole call: the callable runs in eager mode after
  // a few tries. Else the function that ended the recording is one step of the next one, which is no way out
  // where it can't run while anything is recorded.
  void failWhole() { breakLog_.setFailedIn(nullptr); }
  void noteBreak(diag::Code code, std::vector<std::string> args) override;  // before the step runs
  Flow raiseAssertion(const std::string& message);  // instead of the instruction; ends the recording
  bool isStrict() const override;
  void refuse(const diag::Diagnostic& diagnostic) override;
  Flow raiseRefused() override;

 private:
  bool resultUnused() const;

  OperatorLog& operators_;
  BreakLog& breakLog_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  const RecorderOptions& options_;
  const VirtualTable& virtuals_;
};

}  // namespace kintsugi::capture
