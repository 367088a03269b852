#include "passes/waiting_writes.h"

#include "ops/operator.h"
#include "passes/kept_by_eager.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::ValueId;

WaitingWrites::WaitingWrites(const ir::Trace& trace, OperatorTraitsFn traits)
    : trace_(trace),
      traits_(traits),
      older_(trace.values.size(), ir::kNone),
      asked_(trace.values.size(), false),
      written_(trace.values.size(), false) {}

// The older tensor whose memory the value is; kOwn: it is the segment's own; kUnknown: it may be either.
ValueId WaitingWrites::olderOf(ValueId value) const {
  return older_[value] == ir::kNone ? value : older_[value];
}

// The older tensor that the operator writes to, if it writes to no other.
ValueId WaitingWrites::targetOf(const Instruction& ins) const {
  const auto operands = trace_.operandsOf(ins);
  if (ins.op != Op::kAten) return kUnknown;
  const std::string& name = trace_.opNames[ins.opName];
  // Random numbers behind which a decision waits would be drawn twice.
  const bool known =
      ops::isInPlace(name) && !traits_(name).drawsInto && !operands.empty() && operands[0].isValue();
  return known ? olderOf(operands[0].id) : kUnknown;
}

// -1: it is not known, or autograd follows it.
int64_t WaitingWrites::elementsOf(ValueId value) const {
  const ir::Type& type = trace_.values[value];
  if (type.kind != ir::TypeKind::kTensor || type.meta == ir::kNone || !trace_.hasFixedSizes(type)) return -1;
  const ir::TensorDesc& desc = trace_.metas[type.meta];
  if (desc.requiresGrad || !desc.device.isCpu()) return -1;
  int64_t elements = 1;
  for (const int64_t size : desc.sizes) elements *= size;
  return elements;
}

bool WaitingWrites::allows(const Instruction& ins) const {
  const ValueId target = targetOf(ins);
  if (!restorable_ || asksShared_ || target == kUnknown || target == kOwn || asked_[target]) return false;
  const int64_t elements = elementsOf(target);
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ir::Type& made = trace_.values[ins.firstResult + r];
    if (made.meta != ir::kNone && trace_.metas[made.meta].requiresGrad) return false;
  }
  return elements >= 0 && (written_[target] || elements_ + elements <= kMostElements);
}

void WaitingWrites::ask(const Instruction& ins) {
  if (ins.op != Op::kAten) return;
  std::vector<ValueId> used;
  ir::collectValues(trace_, trace_.operandsOf(ins), used);
  for (const ValueId value : used) {
    if (trace_.values[value].kind != ir::TypeKind::kTensor || olderOf(value) == kOwn) continue;
    if (older_[value] != ir::kNone || written_[value]) {
      asksShared_ = true;  // a view, or what each run would find to be written to
    } else {
      asked_[value] = true;
      touched_.push_back(value);
    }
  }
}

void WaitingWrites::add(const Instruction& ins, bool writes) {
  if (ins.op != Op::kAten) return;
  const std::string_view name = trace_.opNames[ins.opName];
  const auto operands = trace_.operandsOf(ins);
  ValueId older = kUnknown;
  if (writes) {
    restorable_ = allows(ins);
    older = targetOf(ins);
    if (restorable_ && !written_[older]) {
      elements_ += elementsOf(older);
      written_[older] = true;
      touched_.push_back(older);
    }
  } else if (sharingOf(trace_, ins) != Sharing::kNone ||
             (ops::isInPlace(name) && !operands.empty() && operands[0].isValue())) {
    older = olderOf(operands[0].id);
  } else if (traits_(name).fresh || ops::has(name, ops::Trait::kFresh)) {
    older = kOwn;
  }
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    older_[ins.firstResult + r] = older;
    touched_.push_back(ins.firstResult + r);
  }
}

void WaitingWrites::clear() {
  for (const ValueId value : touched_) {
    older_[value] = ir::kNone;
    asked_[value] = written_[value] = false;
  }
  touched_.clear();
  elements_ = 0;
  asksShared_ = false;
  restorable_ = true;
}

}  // namespace kintsugi::passes
