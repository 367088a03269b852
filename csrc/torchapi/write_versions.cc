#include "torchapi/write_versions.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/GradMode.h>

#include "ops/operator.h"
#include "torchapi/op_schema.h"

namespace kintsugi::torchapi {

namespace {

// Null: it is no tensor, or one that counts no writes.
c10::TensorImpl* counting(const Value& value) {
  if (value.kind != ValueKind::kTensor || value.tensor == nullptr) return nullptr;
  auto* impl = static_cast<c10::TensorImpl*>(value.tensor);
  return impl->is_inference() || !impl->version_counter().enabled() ? nullptr : impl;
}

void setVersion(c10::TensorImpl& impl, uint32_t version) {
  c10::VariableVersion counter = impl.version_counter();
  if (counter.current_version() != version) counter.set_version(version);
}

}  // namespace

bool countsWritesOnce(std::string_view name) {
  ops::ForeachName foreach;
  if (ops::parseForeach(name, foreach)) return foreach.inPlace;
  const OpSchema* found = findOpSchema(name);
  return found != nullptr && found->op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
}

WriteVersions::WriteVersions(std::span<const Value> inputs) : inputs_(inputs), versions_(inputs.size(), 0) {
  for (size_t k = 0; k < inputs.size(); ++k) {
    const c10::TensorImpl* impl = counting(inputs[k]);
    if (impl == nullptr) continue;
    versions_[k] = impl->version_counter().current_version();
    followed_ = followed_ || (c10::GradMode::is_enabled() && impl->requires_grad());
  }
}

void WriteVersions::count(std::span<const uint32_t> times) const {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (c10::TensorImpl* impl = counting(inputs_[k])) setVersion(*impl, versions_[k]);
  }
  for (size_t k = 0; k < inputs_.size(); ++k) {
    c10::TensorImpl* impl = counting(inputs_[k]);
    for (uint32_t n = 0; impl != nullptr && n < times[k]; ++n) impl->bump_version();
  }
}

void WriteVersions::set(const Value& result, uint32_t version) {
  c10::TensorImpl* impl = counting(result);
  if (impl != nullptr && !impl->requires_grad()) setVersion(*impl, version);
}

}  // namespace kintsugi::torchapi
