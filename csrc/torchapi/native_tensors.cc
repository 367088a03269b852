#include "torchapi/native_tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

#include <new>
#include <utility>

#include "support/check.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

void* newTensor(const TensorLayout& layout) {
  KINTSUGI_DCHECK(layout.sizes.size() == layout.strides.size(), layout.strides.size(), " strides for ",
                  layout.sizes.size(), " sizes");
  at::TensorBase made =
      at::detail::empty_strided_cpu(layout.sizes, layout.strides, scalarTypeOf(layout.dtype), false);
  return made.unsafeReleaseTensorImpl();
}

void* copyTensor(void* impl) {
  const BelowAutograd scope;
  return givenTensor(sharedTensor(impl).clone());
}

void* drawMask(const TensorLayout& layout, double probability) {
  const BelowAutograd scope;
  at::Tensor mask = takenTensor(newTensor(layout));
  mask.bernoulli_(probability);
  return givenTensor(std::move(mask));
}

void* aliasTensor(void* base, const TensorLayout& layout, int64_t offset) {
  const at::TensorImpl& from = *implOf(base);
  KINTSUGI_DCHECK(layout.sizes.size() == layout.strides.size() && from.storage_offset() + offset >= 0,
                  "a view at element ", offset);
  auto made = c10::make_intrusive<at::TensorImpl>(c10::Storage(from.storage()),
                                                  c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                  c10::scalarTypeToTypeMeta(scalarTypeOf(layout.dtype)));
  made->set_sizes_and_strides(layout.sizes, layout.strides, from.storage_offset() + offset);
  made->set_version_counter(from.version_counter());  // an operator may keep the alias
  return made.release();
}

bool isSoleOwner(const void* impl) {
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  return c10::raw::intrusive_ptr::use_count(const_cast<at::TensorImpl*>(&tensor)) == 1 &&
         tensor.storage().use_count() == 1;
}

bool hasLayout(const void* impl, const TensorLayout& layout) {
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  static const c10::DispatchKeySet kLazyBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  return tensor.layout() == c10::kStrided && !tensor.key_set().has_any(kLazyBits) &&
         tensor.device().is_cpu() && dtypeOf(tensor) == layout.dtype &&
         tensor.sizes() == c10::IntArrayRef(layout.sizes) &&
         tensor.strides() == c10::IntArrayRef(layout.strides);
}

bool restride(void*& impl, const TensorLayout& layout) {
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  if (tensor.layout() != c10::kStrided || !tensor.device().is_cpu() || dtypeOf(tensor) != layout.dtype ||
      tensor.sizes() != c10::IntArrayRef(layout.sizes)) {
    return false;
  }
  const BelowAutograd scope;
  at::Tensor copy = takenTensor(newTensor(layout));
  copy.copy_(sharedTensor(impl));
  releaseTensor(std::exchange(impl, givenTensor(std::move(copy))));
  return true;
}

bool hasForm(const void* impl, ir::DType dtype, size_t rank, bool contiguous) {
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  return isOrdinary(impl) && dtypeOf(tensor) == dtype && tensor.dim() == static_cast<int64_t>(rank) &&
         (!contiguous || tensor.is_contiguous());
}

bool isOrdinary(const void* impl) {
  using Key = c10::DispatchKey;
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  static const c10::DispatchKeySet kOrdinary(
      {Key::CPU, Key::AutogradCPU, Key::AutocastCPU, Key::ADInplaceOrView});
  return tensor.layout() == c10::kStrided && tensor.key_set().has(Key::CPU) &&
         (tensor.key_set().raw_repr() & ~kOrdinary.raw_repr()) == 0 && !tensor.has_symbolic_sizes_strides();
}

bool tensorRequiresGrad(const void* impl) {
  return const_cast<at::TensorImpl*>(static_cast<const at::TensorImpl*>(impl))->requires_grad();
}

namespace {

char* firstElement(const at::TensorImpl& tensor, const c10::Storage& storage) {
  return static_cast<char*>(const_cast<void*>(storage.data())) +
         static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
}

}  // namespace

void* dataPointer(void* impl) {
  const at::TensorImpl& tensor = *implOf(impl);
  return firstElement(tensor, tensor.storage());
}

HeldMemory holdMemory(void* impl) {
  const at::TensorImpl& tensor = *implOf(impl);
  c10::Storage storage = tensor.storage();
  void* first = firstElement(tensor, storage);
  return {storage.unsafeReleaseStorageImpl(), first};
}

void releaseMemory(HeldMemory& memory) {
  if (memory.storage != nullptr) {
    c10::intrusive_ptr<c10::StorageImpl>::reclaim(
        static_cast<c10::StorageImpl*>(std::exchange(memory.storage, nullptr)));
  }
}

MemoryExtent memoryExtent(const void* impl) {
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  const char* first = firstElement(tensor, tensor.storage());
  if (tensor.numel() == 0) {
    return {first, first};
  }
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {first, first + static_cast<size_t>(last + 1) * tensor.itemsize()};
}

bool prepareWrite(void* impl) {
  at::TensorImpl& tensor = *implOf(impl);
  if (!tensor.version_counter().enabled()) {
    return false;
  }
  tensor.unsafe_storage().mutable_data();
  return true;
}

void countWrites(void* impl, uint32_t times) {
  for (uint32_t k = 0; k < times; ++k) {
    implOf(impl)->bump_version();
  }
}

void raiseVersion(void* impl, uint32_t writes) {
  const c10::VariableVersion& version = implOf(impl)->version_counter();
  if (!version.enabled()) return;
  const uint32_t now = version.current_version();
  if (now < writes) countWrites(impl, writes - now);
}

void countAsViewedBefore(void* impl, uint32_t writes) {
  auto* meta = torch::autograd::impl::get_view_autograd_meta(sharedTensor(impl));
  if (meta == nullptr || !meta->has_bw_view() || !implOf(impl)->version_counter().enabled()) return;
  meta->set_attr_version(implOf(impl)->version_counter().current_version() - writes);
}

void parallelFor(int64_t count, int64_t grain, void (*range)(void*, int64_t, int64_t), void* context) {
  at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) { range(context, begin, end); });
}

int64_t threadCount() { return at::get_num_threads(); }

struct BelowAutograd::Impl {
  at::AutoDispatchBelowADInplaceOrView guard;
};

BelowAutograd::BelowAutograd() {
  static_assert(sizeof(Impl) <= sizeof(storage_));
  new (storage_) Impl();
}
BelowAutograd::~BelowAutograd() { std::launder(reinterpret_cast<Impl*>(storage_))->~Impl(); }

}  // namespace kintsugi::torchapi
