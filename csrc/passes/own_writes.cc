#include "passes/own_writes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/segments.h"
#include "passes/build_graph.h"
#include "passes/gradient_graph.h"
#include "passes/in_place.h"
#include "passes/operator_rules.h"
#include "support/check.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using ir::TypeKind;
using ir::ValueId;
using ops::Operator;

namespace {

// Each gather copies the tensor. A loop that reads in each turn what it wrote would copy it too often.
constexpr uint32_t kMostGathers = 4;

// True for writes to rows (`x.index_put_(i, y)`). Their functional form is a call that copies the tensor and
// writes to the copy, or writes to the tensor itself where nothing reads it afterwards.
bool isRows(std::string_view name) {
  return ops::isInPlace(name) && ops::infoOf(ops::formOf(name)).rowUpdate != ops::RowUpdateKind::kNone;
}

// Contiguous, with at least one element.
bool isFilled(const ir::TensorDesc& meta) {
  const std::vector<Size> sizes = fixedSizes(meta.sizes);
  return elementCount(sizes) != 0 && isContiguous(sizes, fixedSizes(strideHints(meta)));
}

}  // namespace

// True for operators that always return a view. One that may copy (`reshape`) is not deferred.
bool OwnWrites::isDeferredView(std::string_view name) {
  const Operator op = ops::find(name);
  return isView(op) && !ops::has(op, ops::Trait::kMayCopy);
}

const ir::TensorDesc* OwnWrites::metaOf(ValueId value) const {
  const ir::Type& type = trace_.values[value];
  return type.kind == TypeKind::kTensor && trace_.hasFixedSizes(type) ? &trace_.metas[type.meta] : nullptr;
}

const OwnWrites::ViewOfBase* OwnWrites::viewOfBase(ValueId value) const {
  const auto found = viewsOfBases_.find(value);
  return found == viewsOfBases_.end() ? nullptr : &found->second;
}

// The record of a tensor of the segment's own, or of the base of a view. Null if there is none, or if the
// tensor has escaped.
const OwnWrites::Own* OwnWrites::ownOf(ValueId value) const {
  const ViewOfBase* look = viewOfBase(value);
  if (look == nullptr) {
    return nullptr;
  }
  const Own& own = owns_.at(look->base);
  return own.escaped ? nullptr : &own;
}

// Which slice of the tensor a view is.
std::optional<OwnWrites::Place> OwnWrites::placeOf(ValueId value) const {
  const ViewOfBase* look = viewOfBase(value);
  if (look == nullptr || look->view == nullptr) {
    return std::nullopt;
  }
  const auto operands = trace_.operandsOf(*look->view);
  const ViewOfBase* from = viewOfBase(operands[0].id);
  const bool numbers = std::all_of(operands.begin() + 1, operands.end(), [](const Operand& o) {
    return o.kind == OperandKind::kInt || o.kind == OperandKind::kNone;
  });
  const ir::TensorDesc* base = metaOf(look->base);
  if (from == nullptr || from->view != nullptr || !numbers || base == nullptr) {
    return std::nullopt;
  }
  const auto number = [&](size_t k, int64_t otherwise) {
    return k < operands.size() && operands[k].kind == OperandKind::kInt ? operands[k].i : otherwise;
  };
  const auto rank = static_cast<int64_t>(base->sizes.size());
  Place place;
  place.dim = number(1, 0) + (number(1, 0) < 0 ? rank : 0);
  if (place.dim < 0 || place.dim >= rank) {
    return std::nullopt;
  }
  const int64_t size = base->sizes[static_cast<size_t>(place.dim)];
  const auto index = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const Operator op = trace_.operatorOf(*look->view);
  if (op == Operator::kSelectInt) {
    place.low = index(number(2, 0));
    place.high = place.low + 1;
    place.stacked = true;
  } else if (op == Operator::kSliceTensor && number(4, 1) == 1) {
    place.low = index(number(2, 0));
    place.high = index(number(3, size));
  } else {
    return std::nullopt;
  }
  return place.low < place.high && place.high <= size ? std::optional(place) : std::nullopt;
}

bool OwnWrites::isFollowed(const Instruction& ins) const {
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ir::TensorDesc* meta = metaOf(ins.firstResult + r);
    if (meta != nullptr && meta->requiresGrad) {
      return true;
    }
  }
  return false;
}

// Can both be parts of one concatenation?
bool OwnWrites::fitsBeside(const Own& own, const Place& place) {
  return own.parts.empty() || (own.dim == place.dim && own.stacked == place.stacked &&
                               std::all_of(own.parts.begin(), own.parts.end(), [&](const Part& part) {
                                 const bool same = part.low == place.low && part.high == place.high;
                                 return same || part.high <= place.low || place.high <= part.low;
                               }));
}

// The same slice is read before it is written.
bool OwnWrites::isDisjoint(const Place& place, const std::optional<Place>& other) {
  return other && other->dim == place.dim &&
         ((other->low == place.low && other->high == place.high) || other->high <= place.low ||
          place.high <= other->low);
}

bool OwnWrites::canFunctionalizePart(const Instruction& ins) const {
  const auto operands = trace_.operandsOf(ins);
  if (trace_.operatorOf(ins) != Operator::kCopyInPlace || operands.size() < 2 || !operands[0].isValue() ||
      !operands[1].isValue() || ins.resultCount != 1) {
    return false;
  }
  const Own* own = ownOf(operands[0].id);
  const std::optional<Place> place = own != nullptr ? placeOf(operands[0].id) : std::nullopt;
  const ir::TensorDesc *target = metaOf(operands[0].id), *source = metaOf(operands[1].id);
  if (!place || target == nullptr || source == nullptr || isFollowed(ins) || source->requiresGrad ||
      target->sizes != source->sizes || target->dtype != source->dtype || target->device != source->device) {
    return false;
  }
  const ViewOfBase* look = viewOfBase(operands[1].id);
  const bool ofItself = look != nullptr && look->base == viewOfBase(operands[0].id)->base;
  if (ofItself && !isDisjoint(*place, placeOf(operands[1].id))) {
    return false;  // what is read may have been written a moment before: ATen knows in which order
  }
  const bool gathers = ofItself || !fitsBeside(*own, *place);
  return !gathers || own->gathers < kMostGathers;
}

// Rows of the tensor that rows are written to.
bool OwnWrites::readsItself(const Instruction& ins) const {
  std::vector<ValueId> used;
  ir::collectValues(trace_, trace_.operandsOf(ins).subspan(1), used);
  const ValueId base = viewOfBase(trace_.operandsOf(ins)[0].id)->base;
  return std::any_of(used.begin(), used.end(), [&](ValueId value) {
    const ViewOfBase* look = viewOfBase(value);
    return look != nullptr && look->base == base;
  });
}

bool OwnWrites::canFunctionalizeRows(const Instruction& ins) const {
  const auto operands = trace_.operandsOf(ins);
  if (!isRows(nameOf(ins)) || operands.empty() || !operands[0].isValue() || ins.resultCount != 1) {
    return false;
  }
  const Own* own = ownOf(operands[0].id);
  return own != nullptr && viewOfBase(operands[0].id)->view == nullptr && !isFollowed(ins) &&
         !readsItself(ins) && metaOf(viewOfBase(operands[0].id)->base) != nullptr &&
         own->gathers < kMostGathers;
}

bool OwnWrites::canFunctionalize(const Instruction& ins) const {
  return ins.op == Op::kAten && (canFunctionalizePart(ins) || canFunctionalizeRows(ins));
}

bool OwnWrites::needsCut(const Instruction& ins) const {
  if (ins.op != Op::kAten || !ops::isInPlace(nameOf(ins))) {
    return false;
  }
  const auto operands = trace_.operandsOf(ins);
  const ViewOfBase* look = !operands.empty() && operands[0].isValue() ? viewOfBase(operands[0].id) : nullptr;
  return look != nullptr && look->view != nullptr && ownOf(operands[0].id) != nullptr &&
         !canFunctionalize(ins);
}

// Does a write to `target` leave what the part was taken from as it was?
bool OwnWrites::isSafe(const Part& part, ValueId base, ValueId target) const {
  const ViewOfBase *from = viewOfBase(part.source), *to = viewOfBase(target);
  if (from != nullptr && from->base == base) {
    return false;  // a part of itself
  }
  if (from != nullptr && to != nullptr && from->base == to->base) {
    return false;
  }
  return ownOf(part.source) != nullptr || ownOf(target) != nullptr;
}

void OwnWrites::beforeWrite(ValueId target) {
  for (const ValueId base : std::vector<ValueId>(pending_)) {
    const Own& own = owns_.at(base);
    if (!std::all_of(own.parts.begin(), own.parts.end(),
                     [&](const Part& part) { return isSafe(part, base, target); })) {
      gather(base);
    }
  }
}

void OwnWrites::gather(ValueId base) {
  Own& own = owns_.at(base);
  if (own.parts.empty()) {
    return;
  }
  if (hooks_.gather) {
    hooks_.gather(base, own);
  }
  own.parts.clear();
  ++own.gathers;
  KINTSUGI_CHECK(std::erase(pending_, base) != 0, "parts of %", base, " that are not pending");
}

void OwnWrites::gatherAll() {
  for (const ValueId base : std::vector<ValueId>(pending_)) {
    gather(base);
  }
}

void OwnWrites::read(const Instruction& ins, bool allButFirst) {
  std::vector<ValueId> used;
  ir::collectValues(trace_, trace_.operandsOf(ins).subspan(allButFirst ? 1 : 0), used);
  for (const ValueId value : used) {
    if (const ViewOfBase* look = viewOfBase(value)) {
      gather(look->base);
    }
  }
}

void OwnWrites::addView(const Instruction& ins) {
  const ValueId base = viewOfBase(trace_.operandsOf(ins)[0].id)->base;
  read(ins, true);
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    viewsOfBases_[ins.firstResult + r] = {base, &ins, r};
  }
}

void OwnWrites::addPart(const Instruction& ins) {
  const auto operands = trace_.operandsOf(ins);
  const ValueId target = operands[0].id, source = operands[1].id;
  KINTSUGI_CHECK(viewOfBase(target) != nullptr, "%", target, " is no tensor of the segment's own");
  const ViewOfBase look = *viewOfBase(target);
  const Place place = placeOf(target).value();
  read(ins, true);
  beforeWrite(target);
  Own& own = owns_.at(look.base);
  if (!fitsBeside(own, place)) {
    gather(look.base);
  }
  const Part part{place.low, place.high, source, hooks_.capture ? hooks_.capture(source) : source};
  const auto same =
      std::find_if(own.parts.begin(), own.parts.end(), [&](const Part& p) { return p.low == place.low; });
  if (same != own.parts.end()) {
    *same = part;
  } else {
    own.parts.push_back(part);
  }
  if (own.parts.size() == 1) {
    pending_.push_back(look.base);
  }
  own.dim = place.dim;
  own.stacked = place.stacked;
  viewsOfBases_[ins.firstResult] = look;
}

void OwnWrites::addResults(const Instruction& ins) {
  const std::string& name = nameOf(ins);
  const OperatorTraits traits = traits_(name);
  const bool fresh = traits.fresh || isFreshOperator(name);
  if (!fresh) {
    // The result may be a view of any of them.
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    for (const ValueId value : used) {
      if (const ViewOfBase* look = viewOfBase(value)) {
        owns_.at(look->base).escaped = true;
      }
    }
    return;
  }
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ValueId value = ins.firstResult + r;
    const ir::TensorDesc* meta = metaOf(value);
    if (meta != nullptr && meta->device.isCpu() && elemOf(meta->dtype) != Elem::kOther && isFilled(*meta) &&
        !meta->requiresGrad) {
      owns_[value] = {};
      viewsOfBases_[value] = {value, nullptr, 0};
    }
  }
}

void OwnWrites::add(const Instruction& ins) {
  if (ins.op != Op::kAten) {
    return;  // sizes and numbers, which no write changes
  }
  const std::string name = nameOf(ins);  // hooks may add others
  const auto operands = trace_.operandsOf(ins);
  const ViewOfBase* first = !operands.empty() && operands[0].isValue() ? viewOfBase(operands[0].id) : nullptr;
  if (first != nullptr && isDeferredView(name)) {
    addView(ins);
  } else if (canFunctionalizePart(ins)) {
    addPart(ins);
  } else if (traits_(name).impure) {
    const ViewOfBase look = first != nullptr ? *first : ViewOfBase{};
    const bool known = ops::isInPlace(name) && ins.resultCount == 1;
    std::vector<ValueId> used;
    ir::collectValues(trace_, operands, used);
    read(ins, false);
    for (const ValueId value : used) {
      beforeWrite(value);
    }
    if (first != nullptr && known) {
      owns_.at(look.base).gathers += isRows(name) ? 1 : 0;
      viewsOfBases_[ins.firstResult] = look;
    } else {
      addResults(ins);
    }
  } else {
    read(ins, false);
    addResults(ins);
  }
}

void OwnWrites::clear() {
  owns_.clear();
  viewsOfBases_.clear();
  pending_.clear();
}

}  // namespace kintsugi::passes
