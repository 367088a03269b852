#include "codegen/emit_accesses.h"

#include "support/check.h"

namespace kintsugi::codegen {

using llvm::Value;
using passes::Elem;
using passes::Inner;
using passes::KernelAccess;

Value* AccessEmitter::element(const KernelAccess& access, Value* from, Value* index) {
  return b_.CreateGEP(memoryType(b_, access.elem, 1), from, index);
}

// The first element of a vector whose elements are contiguous.
Value* AccessEmitter::pointer(uint32_t at) {
  const KernelAccess& access = kernel_.accesses[at];
  if (!kernel_.columns) {
    return element(access, row_[at], index_);
  }
  return access.uniform ? row_[at] : element(access, row_[at], b_.CreateMul(index_, innerStride_[at]));
}

// Pointers to all elements of a vector.
Value* AccessEmitter::pointers(uint32_t at) {
  const KernelAccess& access = kernel_.accesses[at];
  Value* lane = b_.CreateZExt(laneNumbers(), registerType(b_, Elem::kI64, lanes_));
  if (kernel_.columns) {
    Value* stride = b_.CreateVectorSplat(lanes_, outerStrides_[at].back());
    return element(access, pointer(at), b_.CreateMul(lane, stride));
  }
  Value* place = b_.CreateAdd(b_.CreateVectorSplat(lanes_, index_), lane);
  place =
      access.repeat == 1 ? place : b_.CreateUDiv(place, b_.CreateVectorSplat(lanes_, integer(access.repeat)));
  Value* offsets = b_.CreateMul(place, b_.CreateVectorSplat(lanes_, innerStride_[at]));
  return element(access, row_[at], offsets);
}

Value* AccessEmitter::fullMask() {
  return mask_ != nullptr ? mask_ : b_.CreateVectorSplat(lanes_, b_.getTrue());
}

// `shift`: a number of elements, as a scalar or for each lane.
Value* AccessEmitter::emitLoad(uint32_t at, Value* shift) {
  const KernelAccess& access = kernel_.accesses[at];
  auto* type = memoryType(b_, access.elem, lanes_);
  const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
  Value* zero = llvm::Constant::getNullValue(type);
  Value* loaded = nullptr;
  if (access.repeat != 1 && access.inner == Inner::kUnit) {
    return loadRepeated(at);
  }
  const bool scattered = shift != nullptr && shift->getType()->isVectorTy();
  if (access.inner == Inner::kZero && kernel_.columns && shift == nullptr) {
    Value* one = b_.CreateAlignedLoad(memoryType(b_, access.elem, 1), pointer(at), align);
    loaded = b_.CreateVectorSplat(lanes_, one);
  } else if (access.inner != Inner::kUnit || scattered) {
    Value* from = shift != nullptr ? element(access, pointers(at), shift) : pointers(at);
    loaded = b_.CreateMaskedGather(type, from, align, fullMask(), zero);
  } else {
    Value* from = shift != nullptr ? element(access, pointer(at), shift) : pointer(at);
    loaded = mask_ != nullptr ? static_cast<Value*>(b_.CreateMaskedLoad(type, from, align, mask_, zero))
                              : b_.CreateAlignedLoad(type, from, align);
  }
  return fromMemory(b_, access.elem, loaded);
}

// Several neighbouring lanes have the same element; the vector begins with the first of such lanes.
Value* AccessEmitter::loadRepeated(uint32_t at) {
  const KernelAccess& access = kernel_.accesses[at];
  const unsigned count = lanes_ / access.repeat;
  auto* type = memoryType(b_, access.elem, count);
  const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
  Value* from = element(access, row_[at], b_.CreateUDiv(index_, integer(access.repeat)));
  std::vector<int> firsts, lanes;
  for (unsigned k = 0; k < count; ++k) {
    firsts.push_back(static_cast<int>(k * access.repeat));
  }
  for (unsigned k = 0; k < lanes_; ++k) {
    lanes.push_back(static_cast<int>(k / access.repeat));
  }
  Value* loaded =
      mask_ != nullptr
          ? static_cast<Value*>(b_.CreateMaskedLoad(type, from, align, b_.CreateShuffleVector(mask_, firsts),
                                                    llvm::Constant::getNullValue(type)))
          : b_.CreateAlignedLoad(type, from, align);
  return b_.CreateShuffleVector(fromMemory(b_, access.elem, loaded), lanes);
}

void AccessEmitter::storeVector(uint32_t at, Value* x) {
  const KernelAccess& access = kernel_.accesses[at];
  x = toMemory(b_, access.elem, x);
  const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
  KINTSUGI_CHECK(access.inner != Inner::kZero, "many values for one place");
  if (access.inner == Inner::kStrided) {
    b_.CreateMaskedScatter(x, pointers(at), align, fullMask());
    return;
  }
  Value* to = pointer(at);
  if (mask_ != nullptr) {
    b_.CreateMaskedStore(x, to, align, mask_);
  } else {
    b_.CreateAlignedStore(x, to, align);
  }
}

}  // namespace kintsugi::codegen
