#include "torchapi/tensor_backup.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <optional>
#include <vector>

#include "torchapi/native_tensors.h"
#include "torchapi/tensor_access.h"
#include "torchapi/tensor_stamp.h"

namespace kintsugi::torchapi {

struct TensorBackup::Impl {
  at::Tensor tensor;
  at::Tensor elements;  // undefined: they are not restored, or are in `bytes`
  std::vector<char>
      bytes;  // of a small tensor in one piece, for which an operator takes longer than the copy
  bool usable = false;
  std::vector<int64_t> sizes, strides;
  at::StorageImpl* storage = nullptr;
  int64_t offset = 0;
  std::optional<uint32_t> version;  // none: it counts no writes
  c10::intrusive_ptr<torch::autograd::Node> gradFn;
  uint32_t outputNr = 0;
  bool requiresGrad = false;

  torch::autograd::AutogradMeta* meta() const { return torch::autograd::impl::get_autograd_meta(tensor); }
  bool isMoved() const {
    at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    return !isPlain(impl) || impl.unsafe_storage().unsafeGetStorageImpl() != storage ||
           impl.storage_offset() != offset || impl.sizes() != sizes || impl.strides() != strides;
  }
  // Autograd follows writes to views, and to tensors with hooks, at more places than are kept here.
  bool isSimple() const {
    const auto* known = meta();
    return known == nullptr || !tensor.requires_grad() ||
           (!known->is_view_ && known->hooks_.empty() && !known->retains_grad_);
  }
};

TensorBackup::TensorBackup(void* impl, bool elements) : impl_(std::make_unique<Impl>()) {
  Impl& kept = *impl_;
  kept.tensor = sharedTensor(impl);
  at::TensorImpl& tensor = *implOf(impl);
  if (!isPlain(tensor) || !tensor.has_storage() || !kept.isSimple()) return;
  kept.sizes = tensor.sizes().vec();
  kept.strides = tensor.strides().vec();
  kept.storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  kept.offset = tensor.storage_offset();
  if (tensor.version_counter().enabled()) kept.version = tensor.version_counter().current_version();
  if (const auto* meta = kept.meta()) {
    kept.gradFn = meta->grad_fn_;
    kept.outputNr = meta->output_nr_;
    kept.requiresGrad = meta->requires_grad_;
  }
  // An operator takes about as long as copying so many bytes.
  constexpr size_t kSmall = size_t{1} << 14;
  const size_t size = static_cast<size_t>(tensor.numel()) * tensor.itemsize();
  if (elements && tensor.device().is_cpu() && tensor.is_contiguous() && size <= kSmall) {
    const auto* first = static_cast<const char*>(tensor.data());
    if (size != 0) kept.bytes.assign(first, first + size);
  } else if (elements) {
    const at::AutoDispatchBelowADInplaceOrView below;
    kept.elements = kept.tensor.clone();
  }
  kept.usable = true;
}

TensorBackup::~TensorBackup() = default;
TensorBackup::TensorBackup(TensorBackup&& other) noexcept = default;

bool TensorBackup::restore() const {
  const Impl& kept = *impl_;
  if (!kept.usable || kept.isMoved() || !kept.isSimple()) return false;
  if (!kept.bytes.empty()) {
    std::memcpy(kept.tensor.unsafeGetTensorImpl()->mutable_data(), kept.bytes.data(), kept.bytes.size());
  } else if (kept.elements.defined()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    kept.tensor.copy_(kept.elements);
  }
  if (kept.version) {
    c10::VariableVersion counter = kept.tensor.unsafeGetTensorImpl()->version_counter();
    counter.set_version(*kept.version);
  }
  if (auto* meta = kept.meta()) {
    meta->grad_fn_ = kept.gradFn;
    meta->output_nr_ = kept.outputNr;
    meta->requires_grad_ = kept.requiresGrad;
  }
  return true;
}

bool mayOverlap(const void* a, const void* b) {
  const auto& first = *static_cast<const at::TensorImpl*>(a);
  const auto& second = *static_cast<const at::TensorImpl*>(b);
  if (!first.has_storage() || !second.has_storage() || !isPlain(first) || !isPlain(second)) return true;
  const MemoryExtent one = memoryExtent(a), other = memoryExtent(b);
  return one.begin < other.end && other.begin < one.end;
}

}  // namespace kintsugi::torchapi
