#include "passes/guard_dedup.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "guard/kinds.h"

namespace kintsugi::passes {

namespace {

using guard::Guard;
using guard::GuardKind;

bool isOneOf(GuardKind kind, std::initializer_list<GuardKind> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool isSymmetric(GuardKind kind) { return kind == GuardKind::kSame || kind == GuardKind::kNotSame; }

// Guards that can imply each other have the same group. Those without a source are alike only when identical.
using Group = std::tuple<guard::BlockId, ir::SourceId, ir::SourceId, GuardKind, ir::ConstId, int64_t>;

Group groupOf(const Guard& guard) {
  const guard::KindInfo& info = guard::kindInfo(guard.kind);
  if (isSymmetric(guard.kind)) {
    const auto [low, high] = std::minmax(guard.source, guard.other);
    return {guard.block, low, high, guard.kind, ir::kNone, 0};
  }
  if (info.has('s')) {
    return {guard.block, guard.source, ir::kNone, GuardKind::kType, ir::kNone, 0};
  }
  return {guard.block, ir::kNone, ir::kNone, guard.kind, guard.key, guard.number};
}

bool isAlwaysTrue(const guard::Document& document, const Guard& guard) {
  if (guard.kind == GuardKind::kSame && guard.source == guard.other) {
    return true;
  }
  const guard::SourceNode* node =
      guard.kind == GuardKind::kIs ? &document.sources.nodes[guard.source] : nullptr;
  return node != nullptr && node->kind == guard::SourceKind::kPinned && node->key == guard.key;
}

}  // namespace

bool implies(const Guard& a, const Guard& b) {
  if (a.block != b.block) {
    return false;
  }
  if (guard::equal(a, b)) {
    return a.number == b.number;  // typeversion may carry the version that was seen
  }
  if (isSymmetric(b.kind)) {
    return a.kind == b.kind && a.source == b.other && a.other == b.source;
  }
  if (!guard::kindInfo(b.kind).has('s') || a.source != b.source) {
    return false;
  }
  switch (b.kind) {
    case GuardKind::kType:
      return isOneOf(a.kind, {GuardKind::kEquals, GuardKind::kTensor, GuardKind::kTensorRank});
    case GuardKind::kLength:
      return isOneOf(a.kind, {GuardKind::kKeys, GuardKind::kSetEquals, GuardKind::kEquals});
    case GuardKind::kLacksKey:
      return a.kind == GuardKind::kKeys;
    case GuardKind::kEquals:
      return a.kind == GuardKind::kIs && a.key == b.key;
    case GuardKind::kTensorRank:
      return a.kind == GuardKind::kTensor && a.number == b.number;
    case GuardKind::kDimRange:
    case GuardKind::kTypeVersion:
    case GuardKind::kOpenAttribute:
    case GuardKind::kIs:
    case GuardKind::kKeys:
    case GuardKind::kSetEquals:
    case GuardKind::kNoDict:
    case GuardKind::kFits:
    case GuardKind::kEmptyMember:
    case GuardKind::kEmptyCell:
    case GuardKind::kFunction:
    case GuardKind::kSame:
    case GuardKind::kNotSame:
    case GuardKind::kTensor:
    case GuardKind::kGlobalState:
      return false;
  }
  return false;
}

void deduplicateGuards(guard::Document& document) {
  std::vector<Guard>& guards = document.guards.guards;
  std::vector<bool> kept(guards.size(), true);
  std::map<Group, std::vector<size_t>> groups;  // the guards kept so far
  for (size_t i = 0; i < guards.size(); ++i) {
    std::vector<size_t>& group = groups[groupOf(guards[i])];
    const auto impliesThis = [&](size_t k) { return implies(guards[k], guards[i]); };
    kept[i] = !isAlwaysTrue(document, guards[i]) && std::none_of(group.begin(), group.end(), impliesThis);
    if (!kept[i]) {
      continue;
    }
    const auto isImplied = [&](size_t k) { return implies(guards[i], guards[k]); };
    const auto place = std::find_if(group.begin(), group.end(), isImplied);
    if (place == group.end()) {
      group.push_back(i);
      continue;
    }
    const size_t earlier = *place;
    for (const size_t k : group) {
      if (k != earlier && isImplied(k)) {
        kept[k] = false;
      }
    }
    guards[earlier] = guards[i];
    kept[i] = false;
    std::erase_if(group, [&](size_t k) { return !kept[k]; });
  }
  size_t next = 0;
  for (size_t i = 0; i < guards.size(); ++i) {
    if (kept[i]) {
      guards[next++] = guards[i];
    }
  }
  guards.resize(next);
}

}  // namespace kintsugi::passes
