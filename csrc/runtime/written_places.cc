#include "runtime/written_places.h"

#include <algorithm>
#include <string_view>

#include "ir/trace.h"
#include "pyapi/text.h"

namespace kintsugi::runtime {

using guard::SourceKind;
using ir::Op;

namespace {

std::string nameOf(const recording::Recording& recording, const ir::Operand& name) {
  if (name.kind == ir::OperandKind::kStr) return recording.document.trace.strings[name.id];
  if (name.kind != ir::OperandKind::kConst) return {};
  PyObject* object = recording.consts[name.id].get();
  return PyUnicode_Check(object) ? pyapi::encoded(object) : std::string();
}

bool isKey(const recording::Recording& recording, guard::ConstId key, const ir::Operand& written) {
  if (written.kind == ir::OperandKind::kConst &&
      recording.consts[key].get() == recording.consts[written.id].get())
    return true;
  const std::string name = nameOf(recording, written);
  return !name.empty() && nameOf(recording, ir::Operand::constant(key)) == name;
}

}  // namespace

WrittenPlaces::WrittenPlaces(const recording::Recording& recording, size_t begin, size_t end)
    : covered_(recording.document.sources.nodes.size()), changed_(covered_.size()) {
  const std::vector<ir::Instruction>& code = recording.document.trace.code;
  for (size_t i = begin; i < std::min(end, code.size()); ++i) noteEffect(recording, code[i]);
  const auto& nodes = recording.document.sources.nodes;
  for (guard::SourceId source = 0; source < nodes.size(); ++source) {  // parents come first
    const guard::SourceId parent = nodes[source].parent;
    if (parent != ir::kNone && covered_[parent]) covered_[source] = true;
  }
  // Containers that no guard is about make no difference.
  std::vector<bool> asked(changed_.size());
  for (const guard::Guard& guard : recording.document.guards.guards) {
    if (guard.source != ir::kNone && guard.kind != guard::GuardKind::kType) asked[guard.source] = true;
  }
  for (size_t source = 0; source < changed_.size(); ++source)
    changed_[source] = changed_[source] && asked[source];
}

void WrittenPlaces::noteEffect(const recording::Recording& recording, const ir::Instruction& instruction) {
  if ((ir::opInfo(instruction.op).flags & ir::kEffect) == 0) return;
  const auto operands = recording.document.trace.operandsOf(instruction);
  const bool isCall = instruction.op == Op::kCall || instruction.op == Op::kCallKnown;
  const auto& nodes = recording.document.sources.nodes;
  for (size_t k = isCall ? 1 : 0; k < (isCall ? operands.size() : 1); ++k) {
    if (operands[k].kind != ir::OperandKind::kSource) continue;
    const guard::SourceId target = operands[k].id;
    changed_[target] = true;
    for (guard::SourceId source = target + 1; source < nodes.size(); ++source) {
      const guard::SourceNode& node = nodes[source];
      if (node.parent == ir::kNone) continue;
      const bool inDict = nodes[node.parent].kind == SourceKind::kDict && nodes[node.parent].parent == target;
      if (inDict) changed_[node.parent] = true;
      if (node.parent != target && !inDict) continue;
      const bool hasKey = node.kind == SourceKind::kDictItem && !isCall;
      if (node.kind == SourceKind::kDict && !isCall) continue;
      covered_[source] = covered_[source] || !hasKey || isKey(recording, node.key, operands[1]);
    }
  }
}

bool WrittenPlaces::concerns(const guard::Guard& guard) const {
  if (guard.source == ir::kNone) return false;
  if (covers(guard.source) || (guard.other != ir::kNone && covers(guard.other))) return true;
  return changed_[guard.source] && guard.kind != guard::GuardKind::kType;
}

}  // namespace kintsugi::runtime
