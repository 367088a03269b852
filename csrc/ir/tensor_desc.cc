#include "ir/tensor_desc.h"

#include <algorithm>
#include <utility>

namespace kintsugi::ir {

namespace {

// Wraps: texts may hold sizes of tensors that no machine has.
int64_t product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

}  // namespace

std::vector<int64_t> packedStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step = product(step, std::max<int64_t>(1, sizes[d]));
  }
  return strides;
}

bool TensorDesc::isOpen() const { return std::find(sizes.begin(), sizes.end(), kAnySize) != sizes.end(); }

bool TensorDesc::isContiguous() const {
  if (strides.empty() || std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
    return true;
  }
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) {
      return false;
    }
    expected = product(expected, sizes[d]);
  }
  return true;
}

bool TensorDesc::hasOwnStrides() const {
  return !strides.empty() && (isOpen() || strides != packedStrides(sizes));
}

const Strided<int64_t>* TensorDesc::seen() const {
  if (isFixed()) {
    return this;
  }
  const bool known = plain && !isConj && !isNeg && hints.sizes.size() == sizes.size() &&
                     hints.strides.size() == sizes.size();
  return known ? &hints : nullptr;
}

TensorDesc TensorDesc::packed(DType dtype, std::vector<int64_t> sizes) {
  TensorDesc desc;
  desc.dtype = dtype;
  desc.strides = packedStrides(sizes);
  desc.sizes = std::move(sizes);
  return desc;
}

}  // namespace kintsugi::ir
