#include "capture/finalizer_uses.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "guard/source_roots.h"
#include "ir/liveness.h"
#include "ir/reach.h"

namespace kintsugi::capture {

using guard::SourceKind;
using ir::Operand;

bool usesEndAtFinalizers(const guard::Document& document, ir::ConstId letGo) {
  const ir::Trace& trace = document.trace;
  const auto isDrop = [&](const ir::Instruction& ins) {
    if (ins.op != ir::Op::kCall) return false;
    const Operand& callee = trace.operandsOf(ins)[0];
    return callee.kind == ir::OperandKind::kConst && callee.id == letGo;
  };
  // For each dropped value: the instruction that drops it, and the guard block at that place.
  std::unordered_map<ir::ValueId, std::pair<uint32_t, guard::BlockId>> dropped;
  guard::BlockId block = 0;
  for (uint32_t i = 0; i < trace.code.size(); ++i) {
    const ir::Instruction& ins = trace.code[i];
    if (ins.op == ir::Op::kGuardBlock) block = static_cast<guard::BlockId>(trace.operandsOf(ins)[0].i);
    if (isDrop(ins)) dropped[trace.operandsOf(ins)[1].id] = {i, block};
  }
  const auto& nodes = document.sources.nodes;
  const ir::SourceRoots roots = guard::sourceRoots(document.sources);
  bool late = false;
  std::unordered_set<ir::ValueId> used;
  ir::ReachWalker walker(trace);
  for (size_t i = trace.code.size(); i-- > 0;) {
    if (isDrop(trace.code[i])) late = late || used.contains(trace.operandsOf(trace.code[i])[1].id);
    walker.instruction(
        trace.code[i], [&](ir::ValueId value) { used.insert(value); },
        [&](ir::SourceId source) {
          if (nodes[source].kind == SourceKind::kValue)
            used.insert(static_cast<ir::ValueId>(nodes[source].index));
        });
  }
  const auto isLate = [&](ir::ValueId root, guard::BlockId at) {
    const auto found = root != ir::kNone ? dropped.find(root) : dropped.end();
    return found != dropped.end() && at > found->second.second;
  };
  for (const guard::SourceNode& node : nodes) {
    if (node.parent != ir::kNone && nodes[node.parent].kind == SourceKind::kValue)
      late = late || isLate(static_cast<ir::ValueId>(nodes[node.parent].index), node.block);
  }
  const ir::Liveness liveness = ir::computeLiveness(trace, roots);
  for (const guard::Guard& g : document.guards.guards) {
    if (g.source != ir::kNone) late = late || isLate(roots.value[g.source], g.block);
    if (g.other != ir::kNone) late = late || isLate(roots.value[g.other], g.block);
    // Two values are the same object. The alias may not be used after the object was dropped either.
    if (g.kind != guard::GuardKind::kSame || roots.value[g.other] == ir::kNone) continue;
    const auto found = dropped.find(roots.value[g.other]);
    const ir::ValueId alias = roots.value[g.source];
    late =
        late || (found != dropped.end() && nodes[g.other].kind == SourceKind::kValue && alias != ir::kNone &&
                 alias != found->first && liveness.lastUse[alias] >= found->second.first);
  }
  return !late;
}

std::vector<ir::ValueId> returnedSteps(const guard::Document& document) {
  const ir::Trace& trace = document.trace;
  const auto& nodes = document.sources.nodes;
  std::vector<ir::ValueId> returned;
  std::vector<Operand> open(trace.operandsOf(trace.code.back()).begin(),
                            trace.operandsOf(trace.code.back()).end());
  std::unordered_set<ir::RecipeId> seen;
  while (!open.empty()) {
    const Operand operand = open.back();
    open.pop_back();
    if (operand.kind == ir::OperandKind::kSource && nodes[operand.id].kind == SourceKind::kValue)
      returned.push_back(static_cast<ir::ValueId>(nodes[operand.id].index));
    if (operand.kind != ir::OperandKind::kRecipe || !seen.insert(operand.id).second) continue;
    open.insert(open.end(), trace.recipes[operand.id].parts.begin(), trace.recipes[operand.id].parts.end());
  }
  return returned;
}

}  // namespace kintsugi::capture
