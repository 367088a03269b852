#include "ir/trace.h"

#include <algorithm>
#include <array>
#include <functional>

#include "ir/signature.h"
#include "ops/operator.h"
#include "support/check.h"

namespace kintsugi::ir {

namespace {

constexpr std::array<OpInfo, static_cast<size_t>(Op::kCount)> kOps = {{
#define KINTSUGI_OP(name, text, operands, results, flags) {#name, text, operands, results, flags},
#include "ir/ops.def"
}};

// Appends `elements` even when they lie in `to` itself, as the operands of another instruction do.
uint32_t appendOperands(std::vector<Operand>& to, std::span<const Operand> elements) {
  const size_t first = to.size();
  const std::less<const Operand*> before;
  const bool aliased = !elements.empty() && !before(elements.data(), to.data()) &&
                       before(elements.data(), to.data() + to.size());
  if (aliased) {
    const size_t offset = static_cast<size_t>(elements.data() - to.data());
    to.resize(first + elements.size());
    std::copy_n(to.begin() + static_cast<ptrdiff_t>(offset), elements.size(),
                to.begin() + static_cast<ptrdiff_t>(first));
  } else {
    to.insert(to.end(), elements.begin(), elements.end());
  }
  KINTSUGI_CHECK(to.size() < kNone, "the trace's operand tables are full");
  return static_cast<uint32_t>(first);
}

size_t combine(size_t seed, size_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2))) * 0x100000001b3ull;
}

size_t hashText(std::string_view text) { return std::hash<std::string_view>{}(text); }

size_t hashMeta(const TensorDesc& meta) {
  size_t hash = combine(static_cast<size_t>(meta.dtype), static_cast<size_t>(meta.device.type));
  for (const int64_t size : meta.sizes) {
    hash = combine(hash, static_cast<size_t>(size));
  }
  hash = combine(hash, meta.sizes.size());
  for (const int64_t stride : meta.strides) {
    hash = combine(hash, static_cast<size_t>(stride));
  }
  hash = combine(hash, (meta.requiresGrad ? 1u : 0u) | (meta.isParam ? 2u : 0u));
  return hash ^ (hash >> 32);
}

uint32_t internText(std::vector<std::string>& table, InternIndex& index, std::string_view text) {
  index.catchUp(table.size(), [&](size_t i) { return hashText(table[i]); });
  const size_t hash = hashText(text);
  const size_t found = index.find(hash, [&](size_t i) { return table[i] == text; });
  if (found == table.size()) {
    table.emplace_back(text);
    index.add(hash);
  }
  return static_cast<uint32_t>(found);
}

}  // namespace

const OpInfo& opInfo(Op op) {
  const auto index = static_cast<size_t>(op);
  KINTSUGI_CHECK(index < kOps.size(), "operation out of range: ", index);
  return kOps[index];
}

ValueId Trace::addValue(Type type) {
  values.push_back(type);
  return static_cast<ValueId>(values.size() - 1);
}

MetaId Trace::internMeta(TensorDesc meta) {
  metaIndex_.catchUp(metas.size(), [this](size_t i) { return hashMeta(metas[i]); });
  const size_t hash = hashMeta(meta);
  const size_t found = metaIndex_.find(hash, [&](size_t i) { return metas[i] == meta; });
  if (found == metas.size()) {
    metas.push_back(std::move(meta));
    metaIndex_.add(hash);
  }
  return static_cast<MetaId>(found);
}

uint32_t Trace::internString(std::string_view text) { return internText(strings, stringIndex_, text); }

uint32_t Trace::internOpName(std::string_view name) { return internText(opNames, opNameIndex_, name); }

uint32_t Trace::internOpName(ops::Operator op) { return internOpName(ops::nameOf(op)); }

ops::Operator Trace::operatorOf(const Instruction& ins) const {
  return ins.op == Op::kAten ? ops::find(opNames[ins.opName]) : ops::Operator::kUnknown;
}

Operand Trace::listOperand(std::span<const Operand> elements) {
  const uint32_t first = appendOperands(lists, elements);
  return Operand::make(OperandKind::kList, first, static_cast<uint32_t>(elements.size()));
}

RecipeId Trace::addRecipe(Recipe recipe) {
  recipes.push_back(std::move(recipe));
  return static_cast<RecipeId>(recipes.size() - 1);
}

StateId Trace::addState(FrameState state, std::span<const Operand> locals, std::span<const Operand> stack) {
  KINTSUGI_CHECK(locals.size() <= UINT16_MAX && stack.size() <= UINT16_MAX, "frame of ", locals.size(),
                 " locals and ", stack.size(), " stack slots");
  state.firstSlot = appendOperands(slots, locals);
  appendOperands(slots, stack);
  state.localCount = static_cast<uint16_t>(locals.size());
  state.stackCount = static_cast<uint16_t>(stack.size());
  states.push_back(state);
  return static_cast<StateId>(states.size() - 1);
}

size_t Trace::append(Op op, std::span<const Operand> operandsOfIt, std::span<const Type> results,
                     StateId snap) {
  KINTSUGI_DCHECK(checkSignature(*this, op, operandsOfIt, results).empty(), opInfo(op).text, ": ",
                  checkSignature(*this, op, operandsOfIt, results));
  Instruction ins;
  ins.op = op;
  ins.snap = snap;
  ins.operandCount = static_cast<uint32_t>(operandsOfIt.size());
  ins.firstOperand = appendOperands(operands, operandsOfIt);
  if (!results.empty()) {
    ins.firstResult = static_cast<ValueId>(values.size());
    ins.resultCount = static_cast<uint32_t>(results.size());
    values.insert(values.end(), results.begin(), results.end());
  }
  code.push_back(ins);
  return code.size() - 1;
}

size_t Trace::countOf(Op op) const {
  return static_cast<size_t>(
      std::count_if(code.begin(), code.end(), [op](const Instruction& i) { return i.op == op; }));
}

}  // namespace kintsugi::ir
