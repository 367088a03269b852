// Makes random documents from a seed: valid ones, and wild ones that are only well formed. For round trips of
// the printer and parser, and for passes, whose result has to be valid again.
//
// Header only, used by the fuzzers and units. The documents are the caller's. No GIL.
#pragma once

#include <algorithm>

#include "fuzz/operand_generator.h"

namespace kintsugi::fuzz {

class DocumentGenerator : private OperandGenerator {
 public:
  explicit DocumentGenerator(uint64_t seed) : OperandGenerator(seed) {}

  // Fulfils guard::verify(kRecorded).
  guard::Document valid() {
    document_ = {};
    values_.clear();
    sources_.clear();
    trace().file = name();
    trace().function = name();
    trace().line = static_cast<int>(random_.below(2000)) - 3;
    tables();
    for (size_t i = random_.below(4); i > 0; --i) {
      document_.sources.argNames.push_back(name());
    }
    moreSources(1 + random_.below(6), 0);
    for (size_t i = random_.below(30); i > 0; --i) {
      instruction();
    }
    append(ir::Op::kRet, {operand(3)}, {}, state());
    moreGuards(random_.below(12));
    document_.guards.blockCount = block_ + 1;
    block_ = 0;
    return std::move(document_);
  }

  // Well formed, with numbers that need not lie in their tables.
  guard::Document wild() {
    guard::Document document = valid();
    ir::Trace& trace = document.trace;
    for (std::vector<ir::Operand>* table : {&trace.operands, &trace.slots}) {
      for (ir::Operand& o : *table) {
        if (random_.oneIn(4)) {
          o = wildOperand();
        }
      }
    }
    for (ir::Instruction& ins : trace.code) {
      ins.snap = random_.oneIn(4) ? anyId() : ins.snap;
    }
    for (ir::FrameState& state : trace.states) {
      state.parent = random_.oneIn(4) ? anyId() : state.parent;
      state.code = random_.oneIn(4) ? anyId() : state.code;
      state.pc = random_.oneIn(4) ? static_cast<int32_t>(random_.bits()) : state.pc;
    }
    for (guard::SourceNode& node : document.sources.nodes) {
      node.parent = random_.oneIn(4) ? anyId() : node.parent;
      node.block = random_.oneIn(8) ? anyId() % 7 : node.block;
    }
    for (guard::Guard& guard : document.guards.guards) {
      guard.number = random_.oneIn(4) ? static_cast<int64_t>(random_.bits()) : guard.number;
      guard.source = random_.oneIn(4) ? anyId() : guard.source;
    }
    return document;
  }

 private:
  void moreGuards(size_t count) {
    for (; count > 0; --count) {
      guard::Guard guard;
      const uint32_t kinds = static_cast<uint32_t>(guard::GuardKind::kGlobalState) + 1;
      guard.kind = static_cast<guard::GuardKind>(random_.below(kinds));
      const guard::KindInfo& info = guard::kindInfo(guard.kind);
      guard.block = random_.below(block_ + 1);
      if (info.has('s')) {
        guard.source = random_.pick(sources_);
        guard.block = std::max(guard.block, document_.sources.nodes[guard.source].block);
      }
      if (info.has('t')) {
        guard.other = random_.pick(sources_);
        guard.block = std::max(guard.block, document_.sources.nodes[guard.other].block);
      }
      guard.key = info.has('k') ? constant() : ir::kNone;
      guard.number = info.has('m')   ? random_.below(trace().metas.size())
                     : info.has('n') ? random_.below(4)
                                     : 0;
      document_.guards.guards.push_back(guard);
    }
  }

  ir::StateId state() {
    if (!trace().states.empty() && random_.oneIn(2)) {
      return random_.below(trace().states.size());
    }
    ir::FrameState state;
    state.parent =
        trace().states.empty() || random_.oneIn(2) ? ir::kNone : random_.below(trace().states.size());
    state.code = constant();
    state.function = operand(1);
    state.pc = static_cast<int32_t>(random_.below(4));
    state.action = static_cast<ir::ReturnAction>(random_.below(3));
    state.replacement = state.action == ir::ReturnAction::kReplace ? operand(1) : ir::Operand::none();
    const std::vector<ir::Operand> locals = some(2);
    const std::vector<ir::Operand> stack = some(2);
    return trace().addState(state, locals, stack);
  }

  size_t append(ir::Op op, const std::vector<ir::Operand>& operands, const std::vector<ir::Type>& results,
                ir::StateId snap) {
    const size_t at = trace().append(op, operands, results, snap);
    for (uint32_t r = 0; r < trace().code[at].resultCount; ++r) {
      values_.push_back(trace().code[at].firstResult + r);
    }
    return at;
  }

  ir::Type type() {
    const auto kind = static_cast<ir::TypeKind>(1 + random_.below(5));
    const bool known = kind == ir::TypeKind::kTensor && random_.oneIn(2);
    return {kind, known ? random_.below(trace().metas.size()) : ir::kNone};
  }

  // A value of this type, or an immediate.
  ir::Operand scalar(ir::TypeKind kind) {
    for (int tries = 0; tries < 4 && !values_.empty(); ++tries) {
      const ir::ValueId value = random_.pick(values_);
      if (trace().values[value].kind == kind) {
        return ir::Operand::value(value);
      }
    }
    return kind == ir::TypeKind::kInt     ? ir::Operand::integer(number())
           : kind == ir::TypeKind::kFloat ? ir::Operand::number(real())
                                          : ir::Operand::boolean(random_.oneIn(2));
  }

  void instruction() {
    const ir::Type intType{ir::TypeKind::kInt, ir::kNone};
    const ir::Type object{ir::TypeKind::kObject, ir::kNone};
    switch (random_.below(10)) {
      case 0:
        append(ir::Op::kInput, {ir::Operand::source(random_.pick(sources_))}, {type()}, ir::kNone);
        break;
      case 1:
        append(ir::Op::kIntAdd, {scalar(ir::TypeKind::kInt), scalar(ir::TypeKind::kInt)}, {intType}, state());
        break;
      case 2:
        append(ir::Op::kNumLt, {scalar(ir::TypeKind::kFloat), scalar(ir::TypeKind::kInt)},
               {{ir::TypeKind::kBool, ir::kNone}}, ir::kNone);
        break;
      case 3:
        append(ir::Op::kGuardTrue, {scalar(ir::TypeKind::kBool)}, {}, state());
        break;
      case 4:
        call();
        break;
      case 5:
        append(ir::Op::kSetAttr, {operand(2), trace().stringOperand(text()), operand(2)}, {}, state());
        break;
      case 6:
        append(ir::Op::kSetCell, {operand(1), operand(1)}, {}, random_.oneIn(2) ? state() : ir::kNone);
        break;
      case 7:
        append(ir::Op::kBuild, {ir::Operand::recipe(recipe(2))}, {object}, state());
        break;
      default:
        aten();
        break;
    }
  }

  void aten() {
    static const std::vector<std::string> kNames = {"aten.add.Tensor",
                                                    "aten.relu.default",
                                                    "int.add",
                                                    "odd name",
                                                    "torchvision.nms.default",
                                                    "snap.x",
                                                    "a.b;c"};
    std::vector<ir::Type> types(random_.below(4));
    for (ir::Type& t : types) {
      t = type();
    }
    const size_t at = append(ir::Op::kAten, some(2), types, state());
    trace().code[at].opName = trace().internOpName(random_.pick(kNames));
  }

  void call() {
    std::vector<ir::Operand> operands = some(2);
    operands.insert(operands.begin(), ir::Operand::constant(constant()));
    const ir::Op op = random_.oneIn(2) ? ir::Op::kCall : ir::Op::kCallPure;
    const size_t at = append(op, operands, {{ir::TypeKind::kObject, ir::kNone}}, state());
    if (operands.size() > 1 && random_.oneIn(2)) {
      const std::vector<ir::Operand> names = {trace().stringOperand(text())};
      const ir::Operand list = trace().listOperand(names);
      trace().code[at].kwCount = list.count;
      trace().code[at].kwNames = list.id;
    }
    append(ir::Op::kGuardBlock, {ir::Operand::integer(++block_)}, {}, state());
    guard::SourceNode node;
    node.kind = guard::SourceKind::kValue;
    node.index = trace().code[at].firstResult;
    node.block = block_;
    addSource(node);
    moreSources(random_.below(3), block_);
  }
};

}  // namespace kintsugi::fuzz
