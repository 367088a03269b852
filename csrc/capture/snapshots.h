// Snapshots, recipes and operands: how the frames and objects at one instruction are rebuilt (snapshot.cc).
//
// A snapshot is made when it is first asked for, before the instruction has run. It is made again if an
// object that it names has changed. An object that escapes is built in the trace, and is named by that value
// from then on.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   const ir::StateId before = rec.snapshots.stateBefore();
//   rec.steps.emit(ir::Op::kGuardTrue, {condition}, {}, before);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unordered_set>

#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/virtual_table.h"
#include "guard/document.h"

namespace kintsugi::capture {

struct RecordContext;

class Snapshots final {
 public:
  Snapshots(RecordContext& rec, guard::Document& document, FrameStack& frames,
            CurrentInstruction& instruction, VirtualTable& virtuals)
      : rec_(rec), document_(document), frames_(frames), instruction_(instruction), virtuals_(virtuals) {}

  ir::StateId stateBefore();  // of the instruction that is being recorded
  CallSite callSite(const Instr& instr, size_t popped, std::vector<Shadow> extra = {},
                    ir::ReturnAction action = ir::ReturnAction::kPush);
  bool operandOf(Shadow shadow, PyObject* object, ir::Operand& out);
  ir::RecipeId addRecipe(ir::Recipe recipe);
  // Builds a virtual object here, because something outside the trace will hold it.
  bool escape(Shadow& shadow, PyObject* object);
  bool canExit(ShadowFrame& frame) const { return frame.rebuildable; }
  ir::StateId makeState(ShadowFrame& frame, int32_t pc, size_t popped, const std::vector<Shadow>& extra,
                        ir::ReturnAction action, ir::Operand replacement);
  // True if the recipe holds a running generator. It names a frame, so only snapshots may use it.
  bool isRunning(ir::RecipeId recipe) const { return running_.contains(recipe); }
  size_t partCount() const { return partCount_; }  // of all recipes

 private:
  ir::StateId callerState(ShadowFrame& frame);
  std::optional<ir::RecipeId> recipeOf(uint32_t virtualId);
  bool recipeParts(Virtual& v, ir::Recipe& recipe);

  RecordContext& rec_;
  guard::Document& document_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  VirtualTable& virtuals_;
  std::unordered_set<ir::RecipeId> running_;
  size_t partCount_ = 0;
};

}  // namespace kintsugi::capture
