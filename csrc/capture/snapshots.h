// Snapshots: how the frames and objects at one instruction are rebuilt.
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

#include "capture/frame_roles.h"
#include "capture/recipes.h"
#include "capture/roles.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/trace_facts.h"
#include "capture/tables/virtual_table.h"
#include "guard/document.h"

namespace kintsugi::capture {

class Snapshots final : public SnapshotMaker, public FrameStates {
 public:
  struct Roles {
    BreakSink& breaks;
    ConstantIds& constants;
    KnownObjects& known;
    TraceWriter& writer;
  };
  Snapshots(const Roles& roles, guard::Document& document, ExceptionLog& exceptions, TraceFacts& facts,
            FrameStack& frames, CurrentInstruction& instruction, VirtualTable& virtuals)
      : breaks_(roles.breaks),
        known_(roles.known),
        writer_(roles.writer),
        trace_(document.trace),
        facts_(facts),
        frames_(frames),
        instruction_(instruction),
        virtuals_(virtuals),
        recipes_(roles.constants, roles.known, document.trace, exceptions, virtuals) {}

  ir::StateId stateBefore() override;
  CallSite callSite(const Instr& instr, size_t popped, Shadows extra = {},
                    ir::ReturnAction action = ir::ReturnAction::kPush) override;
  bool operandOf(Shadow shadow, PyObject* object, ir::Operand& out) override {
    return recipes_.operandOf(shadow, object, out);
  }
  ir::RecipeId addRecipe(ir::Recipe recipe) { return recipes_.add(std::move(recipe)); }
  // Builds a virtual object here, because something outside the trace will hold it.
  bool escape(Shadow& shadow, PyObject* object) override;
  bool escapeHandled() override;
  ir::StateId makeState(ShadowFrame& frame, int32_t pc, size_t popped, const Shadows& extra,
                        ir::ReturnAction action, ir::Operand replacement) override;
  bool isRunning(ir::RecipeId recipe) const override { return recipes_.isRunning(recipe); }
  size_t partCount() const { return recipes_.partCount(); }
  Recipes& recipes() { return recipes_; }

  // Classes that the trace has made and built: an instruction that asks for the class's version.
  ir::ValueId classVersion(const Virtual& cls);
  // Notes the version of a class that has just been built or changed. A change by an opaque step then shows.
  void noteVersion(Virtual& cls);
  std::optional<Shadow> notedVersion(const Virtual& cls) const;

 private:
  bool isCurrent(ShadowFrame& frame);
  ir::StateId callerState(ShadowFrame& frame);
  ir::ValueId build(ir::RecipeId recipe, ir::StateId snap);
  bool escapeCell(Virtual& cls);
  Shadow classAround(const Virtual& v);
  std::vector<std::pair<Shadow, PyObject*>> escapingParts(const Virtual& v, PyObject* object);

  BreakSink& breaks_;
  KnownObjects& known_;
  TraceWriter& writer_;
  ir::Trace& trace_;
  TraceFacts& facts_;
  FrameStack& frames_;
  CurrentInstruction& instruction_;
  VirtualTable& virtuals_;
  Recipes recipes_;
};

}  // namespace kintsugi::capture
