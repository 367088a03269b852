#include "runtime/segment_writes.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "ir/quiet_ops.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "torchapi/op_effects.h"

namespace kintsugi::runtime {

namespace {

using ir::Instruction;
using ir::ValueId;

// What is known of the writes to one memory.
struct Memory {
  uint32_t writes = 0;
  bool onlyStores = true;
  bool readBefore = false;
};

bool isIndex(ir::DType dtype) {
  using ir::DType;
  return dtype == DType::kBool || dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kI16 ||
         dtype == DType::kI32 || dtype == DType::kI64;
}

class WritesOfGraph {
 public:
  explicit WritesOfGraph(const ir::Trace& trace) : trace_(trace) {}

  void add(const Instruction& ins) {
    const torchapi::OpEffects effects = effectsOf(ins);
    splitOperands(ins, effects);
    for (const ValueId value : read_) {
      Memory& memory = memories_[memoryOf(value)];
      if (!effects.views && memory.writes == 0) memory.readBefore = true;
    }
    for (const ValueId value : written_) {
      Memory& memory = memories_[memoryOf(value)];
      ++memory.writes;
      memory.onlyStores = memory.onlyStores && onlyStores(ins);
    }
  }

  // Does a value share memory with the operator's arguments? Then they are one memory from the beginning.
  void join(const Instruction& ins) {
    const torchapi::OpEffects effects = effectsOf(ins);
    splitOperands(ins, effects);
    const std::string& name = nameOf(ins);
    const bool fresh = effects.freshResults || ops::has(name, ops::Trait::kFresh);
    const std::vector<ValueId>& from = effects.writesFirst ? written_ : read_;
    for (uint32_t r = 0; r < ins.resultCount && !fresh; ++r) {
      for (const ValueId value : from) joinTwo(value, ins.firstResult + r);
    }
  }

  bool isWritten(ValueId value) const {
    const auto found = memories_.find(memoryOf(value));
    return found != memories_.end() && found->second.writes > 0;
  }
  // After isWritten().
  bool isRepeatable(ValueId value) const {
    const Memory& memory = memories_.at(memoryOf(value));
    return memory.writes == 1 && memory.onlyStores && !memory.readBefore;
  }

  // May it raise in a run? An operator that the registry does not know may, so does one that looks at
  // contents, and any where sizes vary. Of those in place that are not known, what takes indices or masks, or
  // draws random numbers with given probabilities.
  bool mayRaise(const Instruction& ins) {
    const std::string& name = nameOf(ins);
    ops::Operator op = ops::formOf(name);
    ops::ForeachName foreach;
    if (ops::parseForeach(name, foreach)) op = ops::findForeach(foreach.name);
    if (ops::has(op, ops::Trait::kRaisesOfData)) return true;
    const torchapi::OpEffects effects = effectsOf(ins);
    const bool known = op != ops::Operator::kUnknown;
    if (!known && (!ops::isTorchs(name) || !ops::isInPlace(name) || effects.random)) return true;
    used_.clear();
    ir::collectValues(trace_, trace_.operandsOf(ins), used_);
    return std::ranges::any_of(used_, [&](ValueId value) {
      const ir::Type& type = trace_.values[value];
      if (type.kind != ir::TypeKind::kTensor) return false;
      return !trace_.hasFixedSizes(type) || (!known && isIndex(trace_.metas[type.meta].dtype));
    });
  }

 private:
  const std::string& nameOf(const Instruction& ins) const { return trace_.opNames[ins.opName]; }

  torchapi::OpEffects effectsOf(const Instruction& ins) const {
    torchapi::OpEffects effects = torchapi::opEffects(nameOf(ins));
    if (ir::isQuiet(trace_, ins)) effects.writesUnseen = false;
    return effects;
  }

  // What does not write to its first argument alone may write to any. Where the schema does not say so (batch
  // norms and their statistics), it writes to nothing that autograd follows, which would not see it.
  void splitOperands(const Instruction& ins, const torchapi::OpEffects& effects) {
    written_.clear();
    read_.clear();
    const auto operands = trace_.operandsOf(ins);
    const bool inPlace = effects.writesFirst && !operands.empty();
    if (inPlace) ir::collectValues(trace_, operands.first(1), written_);
    ir::collectValues(trace_, operands.subspan(inPlace ? 1 : 0), read_);
    if (!inPlace && (effects.writes || effects.writesUnseen)) written_ = read_;
    if (effects.writesUnseen) std::erase_if(written_, [this](ValueId v) { return isFollowed(v); });
    const auto isNoTensor = [this](ValueId v) { return trace_.values[v].kind != ir::TypeKind::kTensor; };
    std::erase_if(written_, isNoTensor);
    std::erase_if(read_, isNoTensor);
  }

  bool isFollowed(ValueId value) const {
    const ir::Type& type = trace_.values[value];
    return type.meta != ir::kNone && trace_.metas[type.meta].requiresGrad;
  }

  // Does it write the same when it is run again, whatever it has written to?
  bool onlyStores(const Instruction& ins) const {
    const std::string& name = nameOf(ins);
    if (!ops::isInPlace(name)) return false;
    const ops::OperatorInfo& row = ops::infoOf(ops::formOf(name));
    switch (row.rowUpdate) {
      case ops::RowUpdateKind::kCopyRows:
      case ops::RowUpdateKind::kScatter:
      case ops::RowUpdateKind::kScatterNumber:
        return true;
      case ops::RowUpdateKind::kOther: {  // its last argument says whether it adds
        const auto operands = trace_.operandsOf(ins);
        return operands.size() < 4 || (operands[3].kind == ir::OperandKind::kBool && operands[3].i == 0);
      }
      default:
        return row.has(ops::Trait::kStoresOnly);
    }
  }

  ValueId memoryOf(ValueId value) const {
    for (auto found = before_.find(value); found != before_.end(); found = before_.find(value)) {
      value = found->second;
    }
    return value;
  }
  void joinTwo(ValueId a, ValueId b) {
    a = memoryOf(a);
    b = memoryOf(b);
    if (a != b) before_[std::max(a, b)] = std::min(a, b);
  }

  const ir::Trace& trace_;
  std::unordered_map<ValueId, ValueId> before_;  // by value: another one of the same memory
  std::unordered_map<ValueId, Memory> memories_;
  std::vector<ValueId> written_, read_, used_;
};

}  // namespace

std::vector<SegmentCode::Restored> findRestored(const ir::Trace& trace, std::span<const ValueId> inputs,
                                                std::span<const Instruction* const> graph, bool all) {
  WritesOfGraph writes(trace);
  size_t end = graph.size();
  while (!all && end > 0 && !writes.mayRaise(*graph[end - 1])) --end;
  for (const Instruction* ins : graph) writes.join(*ins);
  for (const Instruction* ins : graph.first(end)) writes.add(*ins);
  std::vector<SegmentCode::Restored> restored;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (trace.values[inputs[k]].kind == ir::TypeKind::kTensor && writes.isWritten(inputs[k])) {
      restored.push_back({k, all || !writes.isRepeatable(inputs[k])});
    }
  }
  return restored;
}

}  // namespace kintsugi::runtime
