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

using torchapi::Value;
using torchapi::ValueKind;

void describeExit(const RunView& run, const ir::Instruction& ins, ExitContext& context) {
  const Value& value = run.values[run.recording.document.trace.operandsOf(ins)[0].id];
  if (ins.op == ir::Op::kGuardMeta && value.kind == ValueKind::kTensor) {
    pyapi::Ref<> tensor = pyapi::steal(torchapi::wrapTensor(value.tensor));
    context.seenMeta = torchapi::describe(tensor.get());
  } else if (ins.op == ir::Op::kGuardValue) {
    switch (value.kind) {
      case ValueKind::kBool:
        context.seen = ir::Operand::boolean(value.i != 0);
        break;
      case ValueKind::kInt:
        context.seen = ir::Operand::integer(value.i);
        break;
      case ValueKind::kFloat:
        context.seen = ir::Operand::number(value.f);
        break;
      default:
        break;
    }
  }
}

}  // namespace kintsugi::runtime
