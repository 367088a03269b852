#include "passes/renumber.h"

#include <numeric>

#include "guard/kinds.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

using guard::Document;
using ir::Operand;
using ir::OperandKind;
using ir::Trace;

uint32_t mapped(const std::vector<uint32_t>& to, uint32_t id, const char* what) {
  KINTSUGI_CHECK(id < to.size() && to[id] != ir::kNone, "a pass dropped ", what, " ", id,
                 ", which is needed");
  return to[id];
}

class TraceRebuilder {
 public:
  TraceRebuilder(Trace& from, const Renumbering& to) : from_(from), to_(to) {}

  Trace run() {
    out_.file = std::move(from_.file);
    out_.function = std::move(from_.function);
    out_.line = from_.line;
    out_.metas = std::move(from_.metas);
    out_.constTexts = std::move(from_.constTexts);
    out_.constCount = from_.constCount;
    for (size_t v = 0; v < from_.values.size(); ++v) {
      if (to_.values[v] != ir::kNone) {
        out_.values.push_back(from_.values[v]);
      }
    }
    for (size_t i = 0; i < from_.code.size(); ++i) {
      if (to_.instructions[i]) {
        instruction(from_.code[i]);
      }
    }
    recipes();
    states();
    return std::move(out_);
  }

 private:
  Operand operand(const Operand& o) {
    switch (o.kind) {
      case OperandKind::kValue:
        return Operand::value(mapped(to_.values, o.id, "value"));
      case OperandKind::kSource:
        return Operand::source(mapped(to_.sources, o.id, "source"));
      case OperandKind::kRecipe:
        return Operand::recipe(mapped(to_.recipes, o.id, "recipe"));
      case OperandKind::kStr:
        return out_.stringOperand(from_.strings[o.id]);
      case OperandKind::kDevice:
        return Operand::make(OperandKind::kDevice, out_.internString(from_.strings[o.id]));
      case OperandKind::kComplex:
        out_.complexes.push_back(from_.complexes[o.id]);
        return Operand::make(OperandKind::kComplex, static_cast<int64_t>(out_.complexes.size() - 1));
      case OperandKind::kList:
        return out_.listOperand(operands(from_.listOf(o)));
      case OperandKind::kNone:
      case OperandKind::kConst:
      case OperandKind::kInt:
      case OperandKind::kFloat:
      case OperandKind::kBool:
      case OperandKind::kDtype:
      case OperandKind::kLayout:
      case OperandKind::kMemoryFormat:
      case OperandKind::kNull:
        return o;
    }
    KINTSUGI_UNREACHABLE("operand kind");
  }

  std::vector<Operand> operands(std::span<const Operand> all) {
    std::vector<Operand> out;
    out.reserve(all.size());
    for (const Operand& o : all) {
      out.push_back(operand(o));
    }
    return out;
  }

  void instruction(const ir::Instruction& from) {
    ir::Instruction ins = from;
    const std::vector<Operand> all = operands(from_.operandsOf(from));
    ins.firstOperand = static_cast<uint32_t>(out_.operands.size());
    out_.operands.insert(out_.operands.end(), all.begin(), all.end());
    if (from.op == ir::Op::kAten) {
      ins.opName = out_.internOpName(from_.opNames[from.opName]);
    }
    if (from.resultCount != 0) {
      ins.firstResult = mapped(to_.values, from.firstResult, "value");
    }
    if (from.kwCount != 0) {
      ins.kwNames = out_.listOperand(operands({from_.lists.data() + from.kwNames, from.kwCount})).id;
    }
    // An instruction that never leaves the trace may name a state that is not kept for it.
    if (from.snap != ir::kNone) {
      const bool leaves = (ir::opInfo(from.op).flags & (ir::kExit | ir::kRaise)) != 0;
      ins.snap = leaves ? mapped(to_.states, from.snap, "frame state") : to_.states[from.snap];
    }
    out_.code.push_back(ins);
  }

  void recipes() {
    for (size_t r = 0; r < from_.recipes.size(); ++r) {
      if (to_.recipes[r] != ir::kNone) {
        const ir::Recipe& from = from_.recipes[r];
        out_.addRecipe({from.kind, from.type, operands(from.parts)});
      }
    }
  }

  void states() {
    for (size_t s = 0; s < from_.states.size(); ++s) {
      if (to_.states[s] != out_.states.size()) {
        continue;  // dropped, or one with an earlier state
      }
      ir::FrameState state = from_.states[s];
      state.parent = state.parent == ir::kNone ? ir::kNone : mapped(to_.states, state.parent, "frame state");
      state.function = operand(state.function);
      state.replacement = operand(state.replacement);
      state.handled = operand(state.handled);
      const std::vector<Operand> locals = operands(from_.localsOf(state));
      const std::vector<Operand> stack = operands(from_.stackOf(state));
      out_.addState(state, locals, stack);
    }
  }

  Trace& from_;
  const Renumbering& to_;
  Trace out_;
};

void renumberSources(Document& document, const Renumbering& to) {
  std::vector<guard::SourceNode> nodes;
  for (size_t s = 0; s < document.sources.nodes.size(); ++s) {
    if (to.sources[s] == ir::kNone) {
      continue;
    }
    guard::SourceNode node = document.sources.nodes[s];
    const guard::KindInfo& info = guard::kindInfo(node.kind);
    if (info.has('p')) {
      node.parent = mapped(to.sources, node.parent, "source");
    }
    if (info.has('v')) {
      node.index = mapped(to.values, static_cast<uint32_t>(node.index), "value");
    }
    nodes.push_back(node);
  }
  document.sources.nodes = std::move(nodes);
}

void renumberGuards(Document& document, const Renumbering& to) {
  for (guard::Guard& guard : document.guards.guards) {
    const guard::KindInfo& info = guard::kindInfo(guard.kind);
    if (info.has('s')) {
      guard.source = mapped(to.sources, guard.source, "source");
    }
    if (info.has('t')) {
      guard.other = mapped(to.sources, guard.other, "source");
    }
  }
}

}  // namespace

Renumbering Renumbering::identity(const Document& document) {
  const auto upTo = [](size_t count) {
    std::vector<uint32_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0u);
    return numbers;
  };
  const Trace& trace = document.trace;
  return {std::vector<bool>(trace.code.size(), true), upTo(trace.values.size()), upTo(trace.recipes.size()),
          upTo(trace.states.size()), upTo(document.sources.nodes.size())};
}

std::vector<uint32_t> numberKept(const std::vector<bool>& kept) {
  std::vector<uint32_t> numbers(kept.size(), ir::kNone);
  uint32_t next = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) {
      numbers[i] = next++;
    }
  }
  return numbers;
}

void renumber(Document& document, const Renumbering& to) {
  const Trace& before = document.trace;
  KINTSUGI_CHECK(to.instructions.size() == before.code.size() && to.values.size() == before.values.size() &&
                     to.recipes.size() == before.recipes.size() && to.states.size() == before.states.size() &&
                     to.sources.size() == document.sources.nodes.size(),
                 "a pass has numbered another document");
  renumberSources(document, to);
  renumberGuards(document, to);
  document.trace = TraceRebuilder(document.trace, to).run();
}

}  // namespace kintsugi::passes
