#include "runtime/exit_context.h"

#include <span>

#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

namespace {

using ir::Operand;
using ir::OperandKind;

class Collector {
 public:
  Collector(const ir::Trace& trace, Materializer& make, ExitContext& context)
      : trace_(trace), make_(make), context_(context) {}

  bool all(std::span<const Operand> operands) {
    for (const Operand& operand : operands) {
      if (!one(operand)) {
        return false;
      }
    }
    return true;
  }

  bool one(const Operand& operand) {
    switch (operand.kind) {
      case OperandKind::kValue:
        return keep(operand, context_.values);
      case OperandKind::kSource:
        return keep(operand, context_.sources);
      case OperandKind::kList:
        return all(trace_.listOf(operand));
      case OperandKind::kRecipe:
        return context_.recipes.contains(operand.id) ||
               (keep(operand, context_.recipes) && all(trace_.recipes[operand.id].parts));
      default:
        return true;
    }
  }

 private:
  bool keep(const Operand& operand, ObjectTable& table) {
    if (table.contains(operand.id)) {
      return true;
    }
    pyapi::Ref<> object;
    if (!make_.get(operand, object)) {
      return false;
    }
    table.emplace(operand.id, std::move(object));
    return true;
  }

  const ir::Trace& trace_;
  Materializer& make_;
  ExitContext& context_;
};

}  // namespace

bool collectObjects(const RunView& run, Materializer& make, ir::StateId state, ExitContext& context) {
  const ir::Trace& trace = run.recording.document.trace;
  Collector collect(trace, make, context);
  for (ir::StateId id = state; id != ir::kNone; id = trace.states[id].parent) {
    const ir::FrameState& frame = trace.states[id];
    if (!collect.one(frame.function) || !collect.one(frame.replacement) || !collect.one(frame.handled) ||
        !collect.all(trace.localsOf(frame)) || !collect.all(trace.stackOf(frame))) {
      return false;
    }
  }
  return true;
}

}  // namespace kintsugi::runtime
