#include "ir/equal.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kintsugi::ir {

namespace {

bool equalBits(double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); }

bool equalAll(const Trace& a, std::span<const Operand> x, const Trace& b, std::span<const Operand> y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [&](const Operand& p, const Operand& q) { return equal(a, p, b, q); });
}

std::string_view constText(const Trace& trace, size_t i) {
  return i < trace.constTexts.size() ? std::string_view(trace.constTexts[i]) : std::string_view();
}

bool equalConsts(const Trace& a, const Trace& b) {
  bool same = a.constCount == b.constCount;
  for (size_t i = 0; same && i < a.constCount; ++i) {
    same = constText(a, i) == constText(b, i);
  }
  return same;
}

bool equalInstructions(const Trace& a, const Instruction& x, const Trace& b, const Instruction& y) {
  if (x.op != y.op || x.resultCount != y.resultCount || x.snap != y.snap || x.kwCount != y.kwCount ||
      x.deferrable != y.deferrable || x.region != y.region) {
    return false;
  }
  if (x.resultCount != 0 && x.firstResult != y.firstResult) {
    return false;
  }
  if (x.op == Op::kAten && a.opNames[x.opName] != b.opNames[y.opName]) {
    return false;
  }
  if (x.kwCount != 0 &&
      !equalAll(a, {a.lists.data() + x.kwNames, x.kwCount}, b, {b.lists.data() + y.kwNames, y.kwCount})) {
    return false;
  }
  return equalAll(a, a.operandsOf(x), b, b.operandsOf(y));
}

bool equalStates(const Trace& a, const FrameState& x, const Trace& b, const FrameState& y) {
  return x.parent == y.parent && x.code == y.code && x.pc == y.pc && x.rebuildable == y.rebuildable &&
         x.action == y.action && (!hasReplacement(x.action) || equal(a, x.replacement, b, y.replacement)) &&
         equal(a, x.handled, b, y.handled) && x.handledOver == y.handledOver &&
         equal(a, x.function, b, y.function) && equalAll(a, a.localsOf(x), b, b.localsOf(y)) &&
         equalAll(a, a.stackOf(x), b, b.stackOf(y));
}

}  // namespace

bool equal(const Trace& a, const Operand& x, const Trace& b, const Operand& y) {
  if (x.kind != y.kind) {
    return false;
  }
  switch (x.kind) {
    case OperandKind::kNone:
    case OperandKind::kNull:
      return true;
    case OperandKind::kValue:
    case OperandKind::kSource:
    case OperandKind::kConst:
    case OperandKind::kRecipe:
      return x.id == y.id;
    case OperandKind::kInt:
    case OperandKind::kDtype:
    case OperandKind::kLayout:
    case OperandKind::kMemoryFormat:
      return x.i == y.i;
    case OperandKind::kBool:
      return (x.i != 0) == (y.i != 0);
    case OperandKind::kFloat:
      return equalBits(x.f, y.f);
    case OperandKind::kStr:
    case OperandKind::kDevice:
      return a.strings[x.id] == b.strings[y.id];
    case OperandKind::kComplex:
      return equalBits(a.complexes[x.id].first, b.complexes[y.id].first) &&
             equalBits(a.complexes[x.id].second, b.complexes[y.id].second);
    case OperandKind::kList:
      return equalAll(a, a.listOf(x), b, b.listOf(y));
  }
  return false;
}

bool equal(const Trace& a, const Trace& b) {
  const auto sameSize = [](const auto& x, const auto& y) { return x.size() == y.size(); };
  if (a.file != b.file || a.function != b.function || a.line != b.line || a.values != b.values ||
      a.metas != b.metas || !equalConsts(a, b) || !sameSize(a.code, b.code) ||
      !sameSize(a.recipes, b.recipes) || !sameSize(a.states, b.states)) {
    return false;
  }
  for (size_t i = 0; i < a.code.size(); ++i) {
    if (!equalInstructions(a, a.code[i], b, b.code[i])) {
      return false;
    }
  }
  for (size_t i = 0; i < a.recipes.size(); ++i) {
    const Recipe& x = a.recipes[i];
    const Recipe& y = b.recipes[i];
    if (x.kind != y.kind || x.type != y.type || !equalAll(a, x.parts, b, y.parts)) {
      return false;
    }
  }
  for (size_t i = 0; i < a.states.size(); ++i) {
    if (!equalStates(a, a.states[i], b, b.states[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace kintsugi::ir
