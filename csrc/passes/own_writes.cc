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

// Each concatenation copies the tensor. A loop that reads in each iteration what it wrote would copy it too
// often if there were more; with fewer, a tensor that is filled in some steps and read between them stays
// with replay.
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

// The OwnTensor that the value is or is a view of. Null if there is none, or if it has escaped.
const OwnWrites::OwnTensor* OwnWrites::ownOf(ValueId value) const {
  const ViewOfBase* view = viewOfBase(value);
  if (view == nullptr) {
    return nullptr;
  }
  const OwnTensor& own = ownTensors_.at(view->base);
  return own.escaped ? nullptr : &own;
}

// The slice of its base that a view is.
std::optional<OwnWrites::Place> OwnWrites::placeOf(ValueId value) const {
  const ViewOfBase* view = viewOfBase(value);
  if (view == nullptr || view->view == nullptr) {
    return std::nullopt;
  }
  const auto operands = trace_.operandsOf(*view->view);
  const ViewOfBase* from = viewOfBase(operands[0].id);
  const bool numbers = std::all_of(operands.begin() + 1, operands.end(), [](const Operand& o) {
    return o.kind == OperandKind::kInt || o.kind == OperandKind::kNone;
  });
  const ir::TensorDesc* base = metaOf(view->base);
  if (from == nullptr || from->view != nullptr || !numbers || base == nullptr) {
    return std::nullopt;
  }
  const auto number = [&](int8_t operand, int64_t otherwise) {
    const auto k = static_cast<size_t>(operand);
    const bool isThere = operand >= 0 && k < operands.size() && operands[k].kind == OperandKind::kInt;
    return isThere ? operands[k].i : otherwise;
  };
  const auto rank = static_cast<int64_t>(base->sizes.size());
  const ops::SliceOperands& slice = ops::infoOf(trace_.operatorOf(*view->view)).slice;
  if (slice.dim < 0) {
    return std::nullopt;
  }
  Place place;
  place.dim = number(slice.dim, 0) + (number(slice.dim, 0) < 0 ? rank : 0);
  if (place.dim < 0 || place.dim >= rank) {
    return std::nullopt;
  }
  const int64_t size = base->sizes[static_cast<size_t>(place.dim)];
  const auto index = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  if (number(slice.step, 1) != 1) {
    return std::nullopt;
  }
  place.stacked = slice.end < 0;
  place.low = index(number(slice.start, 0));
  place.high = place.stacked ? place.low + 1 : index(number(slice.end, size));
  return place.low < place.high && place.high <= size ? std::optional(place) : std::nullopt;
}

bool OwnWrites::requiresGradient(const Instruction& ins) const {
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ir::TensorDesc* meta = metaOf(ins.firstResult + r);
    if (meta != nullptr && meta->requiresGrad) {
      return true;
    }
  }
  return false;
}

// Can both be parts of one concatenation?
bool OwnWrites::fitsBeside(const OwnTensor& own, const Place& place) {
  return own.parts.empty() || (own.dim == place.dim && own.stacked == place.stacked &&
                               std::all_of(own.parts.begin(), own.parts.end(), [&](const Part& part) {
                                 const bool same = part.low == place.low && part.high == place.high;
                                 return same || part.high <= place.low || place.high <= part.low;
                               }));
}

// True also for the same slice: it is read before it is written.
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
  const OwnTensor* own = ownOf(operands[0].id);
  const std::optional<Place> place = own != nullptr ? placeOf(operands[0].id) : std::nullopt;
  const ir::TensorDesc *target = metaOf(operands[0].id), *source = metaOf(operands[1].id);
  if (!place || target == nullptr || source == nullptr || requiresGradient(ins) || source->requiresGrad ||
      target->sizes != source->sizes || target->dtype != source->dtype || target->device != source->device) {
    return false;
  }
  const ViewOfBase* view = viewOfBase(operands[1].id);
  const bool ofItself = view != nullptr && view->base == viewOfBase(operands[0].id)->base;
  if (ofItself && !isDisjoint(*place, placeOf(operands[1].id))) {
    return false;  // source and target overlap: the result depends on the order in which ATen copies
  }
  const bool gathers = ofItself || !fitsBeside(*own, *place);
  return !gathers || own->gathers < kMostGathers;
}

// Does a write to rows read the tensor that it writes to?
bool OwnWrites::readsTarget(const Instruction& ins) const {
  std::vector<ValueId> used;
  ir::collectValues(trace_, trace_.operandsOf(ins).subspan(1), used);
  const ValueId base = viewOfBase(trace_.operandsOf(ins)[0].id)->base;
  return std::any_of(used.begin(), used.end(), [&](ValueId value) {
    const ViewOfBase* view = viewOfBase(value);
    return view != nullptr && view->base == base;
  });
}

bool OwnWrites::canFunctionalizeRows(const Instruction& ins) const {
  const auto operands = trace_.operandsOf(ins);
  if (!isRows(nameOf(ins)) || operands.empty() || !operands[0].isValue() || ins.resultCount != 1) {
    return false;
  }
  const OwnTensor* own = ownOf(operands[0].id);
  return own != nullptr && viewOfBase(operands[0].id)->view == nullptr && !requiresGradient(ins) &&
         !readsTarget(ins) && metaOf(viewOfBase(operands[0].id)->base) != nullptr &&
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
  const ViewOfBase* view = !operands.empty() && operands[0].isValue() ? viewOfBase(operands[0].id) : nullptr;
  return view != nullptr && view->view != nullptr && ownOf(operands[0].id) != nullptr &&
         !canFunctionalize(ins);
}

// True if a write to `target` can't change the tensor that the part is to be copied from.
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
    const OwnTensor& own = ownTensors_.at(base);
    if (!std::all_of(own.parts.begin(), own.parts.end(),
                     [&](const Part& part) { return isSafe(part, base, target); })) {
      gather(base);
    }
  }
}

void OwnWrites::gather(ValueId base) {
  OwnTensor& own = ownTensors_.at(base);
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
    if (const ViewOfBase* view = viewOfBase(value)) {
      gather(view->base);
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
  KINTSUGI_CHECK(viewOfBase(target) != nullptr, "%", target, " is no tensor that the segment allocated");
  const ViewOfBase view = *viewOfBase(target);
  const Place place = placeOf(target).value();
  read(ins, true);
  beforeWrite(target);
  OwnTensor& own = ownTensors_.at(view.base);
  if (!fitsBeside(own, place)) {
    gather(view.base);
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
    pending_.push_back(view.base);
  }
  own.dim = place.dim;
  own.stacked = place.stacked;
  viewsOfBases_[ins.firstResult] = view;
}

void OwnWrites::addResults(const Instruction& ins) {
  const std::string& name = nameOf(ins);
  const OperatorTraits traits = traits_(name);
  const bool fresh = traits.fresh || isFreshOperator(name);
  if (!fresh) {
    // The result may be a view of any operand.
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    for (const ValueId value : used) {
      if (const ViewOfBase* view = viewOfBase(value)) {
        ownTensors_.at(view->base).escaped = true;
      }
    }
    return;
  }
  for (uint32_t r = 0; r < ins.resultCount; ++r) {
    const ValueId value = ins.firstResult + r;
    const ir::TensorDesc* meta = metaOf(value);
    if (meta != nullptr && compilesFor(meta->device) && elemOf(meta->dtype) != Elem::kOther &&
        isFilled(*meta) && !meta->requiresGrad) {
      ownTensors_[value] = {};
      viewsOfBases_[value] = {value, nullptr, 0};
    }
  }
}

void OwnWrites::add(const Instruction& ins) {
  if (ins.op != Op::kAten) {
    return;  // a size or a number: no write changes it
  }
  const std::string name = nameOf(ins);  // hooks may add others
  const auto operands = trace_.operandsOf(ins);
  const ViewOfBase* first = !operands.empty() && operands[0].isValue() ? viewOfBase(operands[0].id) : nullptr;
  if (first != nullptr && isDeferredView(name)) {
    addView(ins);
  } else if (canFunctionalizePart(ins)) {
    addPart(ins);
  } else if (traits_(name).impure) {
    const ViewOfBase view = first != nullptr ? *first : ViewOfBase{};
    const bool known = ops::isInPlace(name) && ins.resultCount == 1;
    std::vector<ValueId> used;
    ir::collectValues(trace_, operands, used);
    read(ins, false);
    for (const ValueId value : used) {
      beforeWrite(value);
    }
    if (first != nullptr && known) {
      ownTensors_.at(view.base).gathers += isRows(name) ? 1 : 0;
      viewsOfBases_[ins.firstResult] = view;
    } else {
      addResults(ins);
    }
  } else {
    read(ins, false);
    addResults(ins);
  }
}

void OwnWrites::clear() {
  ownTensors_.clear();
  viewsOfBases_.clear();
  pending_.clear();
}

}  // namespace kintsugi::passes
