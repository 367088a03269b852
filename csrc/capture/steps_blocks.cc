// Steps: the guard blocks of the trace, once it has been recorded.
#include <algorithm>
#include <numeric>
#include <utility>

#include "capture/steps.h"
#include "pyapi/code.h"
#include "pyapi/text.h"
#include "support/check.h"
#include "torchapi/op_effects.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;

guard::BlockId Steps::blockOf(const ir::Instruction& ins) const {
  return static_cast<guard::BlockId>(document_.trace.operandsOf(ins)[0].i);
}

std::vector<guard::BlockId> Steps::eachOfItsOwn() const {
  std::vector<guard::BlockId> blocks(blocks_.newest() + 1);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

// A guard block that checks something needs a snapshot from which the frames can be rebuilt.
void Steps::checkBlocks() {
  std::vector<bool> guarded(blocks_.newest() + 1, false);
  for (const guard::Guard& g : document_.guards.guards) guarded[g.block] = true;
  for (const guard::SourceNode& node : document_.sources.nodes) {
    if (node.kind != guard::SourceKind::kValue) guarded[node.block] = true;
  }
  for (const ir::Instruction& ins : document_.trace.code) {
    if (ins.op != Op::kGuardBlock) continue;
    const guard::BlockId block = blockOf(ins);
    if (!guarded[block] || document_.trace.states[ins.snap].rebuildable) continue;
    ir::ConstId code = document_.trace.states[ins.snap].code;
    auto* where = reinterpret_cast<PyCodeObject*>(constants_.at(code));
    roles_.breaks.abort(diag::Code::KTG0103,
                        {std::string("after a step in ") + pyapi::utf8(pyapi::qualifiedNameOf(where))});
    breakLog_.setFailedIn(document_.trace.states[ins.snap].parent == ir::kNone ? nullptr
                                                                               : constants_.at(code));
    return;
  }
}

void Steps::writeHeldGuards() {
  if (held_.empty()) return;
  std::ranges::stable_sort(held_, {}, &HeldTensor::block);
  auto next = held_.begin();
  std::vector<ir::Instruction> code;
  for (const ir::Instruction& ins : std::exchange(document_.trace.code, {})) {
    code.push_back(ins);
    if (ins.op != Op::kGuardBlock) continue;
    const guard::BlockId block = blockOf(ins);
    for (; next != held_.end() && next->block <= block; ++next) {
      const Operand operands[] = {Operand::value(next->tensor), Operand::integer(next->meta)};
      document_.trace.append(Op::kGuardMeta, operands, {}, ins.snap);
      code.push_back(document_.trace.code.back());
    }
  }
  KINTSUGI_CHECK(next == held_.end(), "a tensor that is guarded in block ", next->block);
  document_.trace.code = std::move(code);
  held_.clear();
}

// Takes guard blocks out of the trace. `into` names the block that checks the guards of each block: itself,
// an earlier one, or none (ir::kNone), whose guards go too.
void Steps::removeBlocks(std::vector<guard::BlockId> into) {
  std::vector<ir::Instruction>& code = document_.trace.code;
  guard::BlockId next = 0;
  std::vector<guard::BlockId> renamed(into.size(), 0);
  std::erase_if(code, [&](const ir::Instruction& ins) {
    if (ins.op != Op::kGuardBlock) return false;
    const guard::BlockId block = blockOf(ins);
    if (into[block] != block) return true;
    renamed[block] = ++next;
    document_.trace.operands[ins.firstOperand] = Operand::integer(next);
    return false;
  });
  for (guard::BlockId& block : into) block = block == ir::kNone ? ir::kNone : renamed[block];
  auto& guards = document_.guards.guards;
  std::erase_if(guards, [&](const guard::Guard& g) { return into[g.block] == ir::kNone; });
  for (guard::Guard& g : guards) g.block = into[g.block];
  for (guard::SourceNode& node : document_.sources.nodes) node.block = into[node.block];
  blocks_.renumber(next);
}

void Steps::dropStateBlocks() {
  const std::vector<ir::Instruction>& code = document_.trace.code;
  std::vector<guard::BlockId> into = eachOfItsOwn();
  bool any = false;
  for (size_t i = 1; i < code.size(); ++i) {
    if (code[i].op != Op::kGuardBlock || code[i - 1].op != Op::kAten || blockOf(code[i]) <= blocks_.root())
      continue;
    into[blockOf(code[i])] = ir::kNone;
    any = true;
  }
  if (!any) return;
  const auto keep = [&](guard::BlockId block) { into[block] = block; };
  for (const guard::Guard& g : document_.guards.guards) {
    if (g.kind != guard::GuardKind::kGlobalState) keep(g.block);
  }
  for (const guard::SourceNode& node : document_.sources.nodes) keep(node.block);
  removeBlocks(std::move(into));
}

// Nothing stands between the block of a call that was done once and the block before it that could change
// what guards read; they do not read the random generator. So that block checks the guards of both.
void Steps::mergeBlocks() {
  if (doneOnce_.empty()) return;
  std::vector<guard::BlockId> into = eachOfItsOwn();
  guard::BlockId last = blocks_.root();
  bool quiet = true;
  for (const ir::Instruction& ins : document_.trace.code) {
    if (ins.op != Op::kGuardBlock) {
      quiet = quiet && (ins.deferrable || torchapi::makesOrDraws(document_.trace, ins));
      continue;
    }
    const guard::BlockId block = blockOf(ins);
    if (block <= blocks_.root()) continue;
    if (quiet && std::ranges::binary_search(doneOnce_, block)) {
      into[block] = last;
      continue;
    }
    last = block;
    quiet = true;
  }
  removeBlocks(std::move(into));
}

}  // namespace kintsugi::capture
