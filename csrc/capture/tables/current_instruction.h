// The instruction that is being recorded.
//
// A handler makes guards and snapshots, executes the instruction once, and then says what the result is. The
// snapshot *before* the instruction is made when it is first asked for, from the stack as it was when the
// instruction began. After the execution it can't be made any more. Frames that run inside the instruction
// are recorded in the meantime: nested_frames.h saves and restores this object around them.
//
// Plain data; owned by the Recorder. The recording thread, GIL held. Example:
//
//   current.begin(instr, frame.stack.size());
//   ... if (!current.isExecuted()) current.noteExecuted(act.execute(instr)) ...
#pragma once

#include "capture/shadow.h"

namespace kintsugi::capture {

class CurrentInstruction {
 public:
  void begin(const Instr& instr, size_t depth) {
    instr_ = &instr;
    depth_ = depth;
    executed_ = false;
    flow_ = Flow{};
    state_ = ir::kNone;
  }
  // For the second of two halves of an instruction (record/second_half.h). Its snapshots describe the stack
  // as it was before the first half.
  void beginHalf(const StackBefore* before, size_t depth) {
    stackBefore_ = before;
    depth_ = depth;
    executed_ = false;
  }

  const Instr* instr() const { return instr_; }
  size_t depthBefore() const { return depth_; }  // of the shadow stack when the instruction began
  const StackBefore* stackBefore() const { return stackBefore_; }
  void setStackBefore(const StackBefore* before) { stackBefore_ = before; }

  bool isExecuted() const { return executed_; }
  void setExecuted(bool executed) { executed_ = executed; }
  Flow flow() const { return flow_; }  // how the instruction was left; valid once it is executed
  void setFlow(Flow flow) { flow_ = flow; }
  // True if a snapshot before the instruction can still be made.
  bool isUntouched(size_t depth) const { return !executed_ && depth == depth_; }

  ir::StateId state() const { return state_; }  // the snapshot before it; kNone: not made yet
  void setState(ir::StateId state) { state_ = state; }
  // Objects that the snapshot names have changed, so it has to be made again.
  void forgetState() { state_ = ir::kNone; }

  // What frames that run inside the instruction would overwrite.
  struct Saved {
    const Instr* instr;
    size_t depth;
    bool executed;
    Flow flow;
  };
  Saved save() const { return {instr_, depth_, executed_, flow_}; }
  void restore(const Saved& saved) {
    instr_ = saved.instr;
    depth_ = saved.depth;
    executed_ = saved.executed;
    flow_ = saved.flow;
    forgetState();
  }

 private:
  const Instr* instr_ = nullptr;
  const StackBefore* stackBefore_ = nullptr;
  size_t depth_ = 0;
  bool executed_ = false;
  Flow flow_{};
  ir::StateId state_ = ir::kNone;
};

}  // namespace kintsugi::capture
