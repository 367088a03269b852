#include "ops/operator.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace kintsugi::ops {

namespace {

// One attribute after the other is put into a row.
struct Row {
  OperatorInfo info;

  constexpr Row with(Trait trait) const {
    Row row = *this;
    row.info.traits |= bitOf(trait);
    return row;
  }
  template <class T>
  constexpr Row with(T OperatorInfo::*field, const T& value) const {
    Row row = *this;
    row.info.*field = value;
    return row;
  }
};

constexpr std::array<int8_t, 2> quietOperands(std::initializer_list<int8_t> given) {
  std::array<int8_t, 2> operands{-1, -1};
  std::copy(given.begin(), given.end(), operands.begin());
  return operands;
}

#define KTG_FRESH .with(Trait::kFresh)
#define KTG_PURE .with(Trait::kPure)
#define KTG_MAY_COPY .with(Trait::kMayCopy)
#define KTG_BY_FORM .with(Trait::kByForm)
#define KTG_STORES_ONLY .with(Trait::kStoresOnly)
#define KTG_COPIES .with(Trait::kCopies)
#define KTG_MASKED .with(Trait::kMasked)
#define KTG_FORGETS_RESULT .with(Trait::kForgetsResult)
#define KTG_KEEPS_NOTHING .with(Trait::kKeepsNothing)
#define KTG_SIZES_OF_DATA .with(Trait::kSizesOfData)
#define KTG_RAISES_OF_DATA .with(Trait::kRaisesOfData)
#define KTG_LAYS_OUT_OTHERWISE .with(Trait::kLaysOutOtherwise)
#define KTG_WRITES_UNMARKED .with(Trait::kWritesUnmarked)
#define KTG_REPLACES_TENSOR .with(Trait::kReplacesTensor)
#define KTG_NEW_FORM(op) .with(&OperatorInfo::newForm, Operator::op)
#define KTG_QUIET_IF_ZERO(...) .with(&OperatorInfo::quietIfZero, quietOperands({__VA_ARGS__}))
#define KTG_GIVES_BACK(when, operand) \
  .with(&OperatorInfo::givesBack, GivesBack{GivesBack::When::when, operand})
#define KTG_SLICE(dim, start, end, step) .with(&OperatorInfo::slice, SliceOperands{dim, start, end, step})
#define KTG_LAYOUT(role) .with(&OperatorInfo::layout, LayoutRole::role)
#define KTG_ROW_UPDATE(kind) .with(&OperatorInfo::rowUpdate, RowUpdateKind::kind)
#define KTG_FOREACH(name, takes) .with(&OperatorInfo::foreach, Foreach{name, ForeachTakes::takes})
#define KTG_PRODUCT(left, right, added, byRows, operands) \
  .with(&OperatorInfo::product, ProductOperands{left, right, added, byRows, operands})
#define KTG_TORCH_FROM(minor) .with(&OperatorInfo::torchFrom, std::string_view(minor))
#define KTG_TORCH_BEFORE(minor) .with(&OperatorInfo::torchBefore, std::string_view(minor))
#define KTG_RANDOM .with(Trait::kRandom)
#define KTG_ATTENTION(mask, dropout, causal, scale, grouped) \
  .with(&OperatorInfo::attention, AttentionOperands{mask, dropout, causal, scale, grouped})
#define KTG_ACTIVATION(attribute, operands, slope, text) \
  .with(&OperatorInfo::activation, Activation{attribute, operands, slope, text})
#define KTG_OPERATOR(id, name, ...) \
  (Row {                            \
    { Operator::id, name }          \
  } __VA_ARGS__)                    \
      .info,

constexpr double kOperand = Activation::kOperand;
constexpr std::array<OperatorInfo, kOperatorCount> kOperators = {
    OperatorInfo{},
#include "ops/operators.def"
};

struct Packet {
  std::string_view name;
  uint32_t traits;
};
#define KTG_FRESH bitOf(Trait::kFresh)
#define KTG_SIZES_OF_DATA bitOf(Trait::kSizesOfData)
#define KTG_SIZES_OF_MASKS bitOf(Trait::kSizesOfMasks)
#define KTG_RANK_OF_SIZES bitOf(Trait::kRankOfSizes)
#define KTG_RANK_OF_NUMBERS bitOf(Trait::kRankOfNumbers)
#define KTG_IDENTITY_OF_SIZES bitOf(Trait::kIdentityOfSizes)
#define KTG_IDENTITY_OF_TYPE bitOf(Trait::kIdentityOfType)
#define KTG_MAKES_EMPTY bitOf(Trait::kMakesEmpty)
#define KTG_FORWARD_MODE bitOf(Trait::kForwardMode)
#define KTG_OF_METADATA bitOf(Trait::kOfMetadata)
#define KTG_PACKET(name, traits) {name, traits},
constexpr Packet kPackets[] = {
#include "ops/operators.def"
};

#define KTG_ACCURACY(argument, ulp, ofX, least) {argument, ulp, ofX, least},
struct Bound {
  std::string_view argument;
  double ulp, ofX, least;
};
struct Bounds {
  Operator op;
  std::array<Bound, 8> bounds;
};
#define KTG_OPERATOR(id, name, ...) {Operator::id, {{__VA_ARGS__}}},
constexpr Bounds kBounds[] = {
#include "ops/operators.def"
};

template <class Visit>
constexpr void forEachBound(Visit visit) {
  for (const Bounds& row : kBounds)
    for (const Bound& b : row.bounds)
      if (b.ulp != 0)
        visit(Accuracy{kOperators[static_cast<size_t>(row.op)].name, b.argument, b.ulp, b.ofX, b.least});
}
constexpr size_t kAccuracyCount = [] {
  size_t count = 0;
  forEachBound([&](const Accuracy&) { ++count; });
  return count;
}();
constexpr auto kAccuracies = [] {
  std::array<Accuracy, kAccuracyCount> all{};
  size_t at = 0;
  forEachBound([&](const Accuracy& accuracy) { all[at++] = accuracy; });
  return all;
}();

// Names are looked up in a table of hashes that the compiler makes.
constexpr size_t hashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash ^ (hash >> 32);
}
constexpr size_t kSlots = 1024;
static_assert(kOperatorCount * 2 <= kSlots, "the table of names is too full");
constexpr auto kSlotOf = [] {
  std::array<uint16_t, kSlots> slots{};
  for (size_t i = 1; i < kOperatorCount; ++i) {
    size_t at = hashOf(kOperators[i].name) % kSlots;
    while (slots[at] != 0) at = (at + 1) % kSlots;
    slots[at] = static_cast<uint16_t>(i);
  }
  return slots;
}();

std::string_view packetOf(std::string_view name) { return name.substr(0, name.rfind('.')); }

}  // namespace

Operator find(std::string_view name) {
  for (size_t at = hashOf(name) % kSlots; kSlotOf[at] != 0; at = (at + 1) % kSlots)
    if (kOperators[kSlotOf[at]].name == name) return kOperators[kSlotOf[at]].id;
  return Operator::kUnknown;
}

const OperatorInfo& infoOf(Operator op) { return kOperators[static_cast<size_t>(op)]; }

bool has(std::string_view name, Trait trait) {
  if (infoOf(name).has(trait)) return true;
  const std::string_view packet = packetOf(name);
  return std::ranges::any_of(
      kPackets, [&](const Packet& row) { return row.name == packet && (row.traits & bitOf(trait)) != 0; });
}

std::vector<std::string_view> traitNamesOf(std::string_view name) {
  constexpr std::string_view kNames[] = {
#define KTG_TRAIT(id, text) text,
#include "ops/traits.def"
  };
  std::vector<std::string_view> names;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (has(name, static_cast<Trait>(i))) names.push_back(kNames[i]);
  return names;
}

bool isTorchs(std::string_view name) { return name.starts_with("aten.") || name.starts_with("prims."); }

bool isCollective(std::string_view name) {
  constexpr std::string_view kNamespaces[] = {
      "c10d.",     "_c10d_functional.", "_c10d_functional_autograd.", "c10d_functional.",
      "symm_mem.", "_dtensor."};
  return std::any_of(std::begin(kNamespaces), std::end(kNamespaces),
                     [&](std::string_view space) { return name.starts_with(space); });
}

bool isInPlace(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot != std::string_view::npos && dot != 0 && name[dot - 1] == '_';
}

std::string newForm(std::string_view name) {
  if (!isInPlace(name)) return {};
  if (const Operator other = infoOf(name).newForm; other != Operator::kUnknown)
    return std::string(nameOf(other));
  const size_t dot = name.rfind('.');
  return std::string(name.substr(0, dot - 1)) + std::string(name.substr(dot));
}

Operator formOf(std::string_view name) { return isInPlace(name) ? find(newForm(name)) : find(name); }

bool isBackward(std::string_view name) { return packetOf(name).ends_with("_backward"); }

bool parseForeach(std::string_view name, ForeachName& out) {
  constexpr std::string_view kPrefix = "aten._foreach_";
  const size_t dot = name.rfind('.');
  if (!name.starts_with(kPrefix) || dot < kPrefix.size()) return false;
  out.name = name.substr(kPrefix.size(), dot - kPrefix.size());
  out.overload = name.substr(dot + 1);
  out.inPlace = out.name.ends_with('_');
  out.name.remove_suffix(out.inPlace ? 1 : 0);
  return true;
}

Operator findForeach(std::string_view name) {
  const auto* row = std::ranges::find_if(
      kOperators, [&](const OperatorInfo& info) { return !name.empty() && info.foreach.name == name; });
  return row == kOperators.end() ? Operator::kUnknown : row->id;
}

std::span<const OperatorInfo> operators() { return kOperators; }
std::span<const Accuracy> accuracies() { return kAccuracies; }

}  // namespace kintsugi::ops
