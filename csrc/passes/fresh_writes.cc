#include "passes/fresh_writes.h"

#include <algorithm>
#include <string_view>

#include "ops/operator.h"
#include "passes/seen_values.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::ValueId;

namespace {

// Stores into objects are not left but for want of memory.
bool isStore(Op op) { return op == Op::kSetAttr || op == Op::kSetItem || op == Op::kSetCell; }

}  // namespace

FreshWrites::FreshWrites(const ir::Trace& trace, OperatorTraitsFn traits)
    : trace_(trace),
      traits_(traits),
      base_(trace.values.size(), ir::kNone),
      madeAfter_(base_.size()),
      shared_(base_.size()),
      named_(base_.size()),
      written_(base_.size()) {}

bool FreshWrites::isContainedWrite(const Instruction& ins) const {
  if (ins.op != Op::kAten || !writesToFirst(trace_, ins)) {
    return false;
  }
  const OperatorTraits traits = traits_(trace_.opNames[ins.opName]);
  if (!traits.writes && !traits.drawsInto) {
    return false;
  }
  const ValueId base = base_[trace_.operandsOf(ins)[0].id];
  return base != ir::kNone && !shared_[base] && !named_[base] && madeAfter_[base] == stops_;
}

bool FreshWrites::defer(const Instruction& ins) {
  if (!walker_) {
    walker_.emplace(trace_);
  }
  Instruction given = ins;
  if (isStore(ins.op)) {
    given.snap = ir::kNone;
  }
  bool free = true;
  walker_->instruction(
      given,
      [&](ValueId value) {
        const ValueId base = base_[value];
        if (base != ir::kNone) {
          named_[base] = true;
          free = free && !written_[base];
        }
      },
      [](ir::SourceId) {});
  return free;
}

// The own tensor that the results may be views of. If there may be several, none of them is tracked any more.
ValueId FreshWrites::baseOfOperands(const Instruction& ins) {
  std::vector<ValueId> used;
  ir::collectValues(trace_, trace_.operandsOf(ins), used);
  std::erase_if(used, [this](ValueId value) { return trace_.values[value].kind != ir::TypeKind::kTensor; });
  if (used.size() == 1) {
    return base_[used[0]];
  }
  for (const ValueId value : used) {
    if (base_[value] != ir::kNone) {
      shared_[base_[value]] = true;
    }
  }
  return ir::kNone;
}

void FreshWrites::setBase(const Instruction& ins, ValueId base) {
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    base_[ins.firstResult + r] = base;
  }
}

void FreshWrites::add(const Instruction& ins) {
  if (ins.op != Op::kAten || ins.resultCount == 0) {
    return;
  }
  if (isContainedWrite(ins)) {
    const ValueId base = base_[trace_.operandsOf(ins)[0].id];
    written_[base] = true;
    setBase(ins, base);
  } else if (const std::string_view name = trace_.opNames[ins.opName];
             traits_(name).fresh || ops::has(name, ops::Trait::kFresh)) {
    setBase(ins, ins.firstResult);
    madeAfter_[ins.firstResult] = stops_;
  } else {
    setBase(ins, baseOfOperands(ins));
  }
}

void FreshWrites::clear() {
  std::fill(base_.begin(), base_.end(), ir::kNone);
  shared_.assign(shared_.size(), false);
  named_.assign(named_.size(), false);
  written_.assign(written_.size(), false);
  walker_.reset();
  stops_ = 0;
}

}  // namespace kintsugi::passes
