#include "torchapi/kept_tensors.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>

#include "support/check.h"
#include "torchapi/native_tensors.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

using From = ir::SegmentPlace::From;

at::Tensor sameMemory(at::TensorImpl& impl) {
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), true));
}

bool liesAs(const at::Tensor& a, const at::Tensor& b) {
  return isOrdinary(a.unsafeGetTensorImpl()) && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool hasMemoryOf(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() &&
         a.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl() ==
             b.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && liesAs(a, b);
}

}  // namespace

at::Tensor KeptTensors::Seen::now() const {
  if (tensor.defined()) return tensor;
  auto alive = output.lock();
  return alive ? at::Tensor(std::move(alive)) : then;
}

bool KeptTensors::Seen::isMoved() const { return then.defined() && !hasMemoryOf(now(), then); }

bool KeptTensors::isStored(size_t input) const {
  return std::ranges::find(form_.written, input) != form_.written.end();
}

void KeptTensors::keepInputs(std::span<const Value> inputs) {
  KINTSUGI_CHECK(inputs.size() <= form_.recompute.size(), inputs.size(), " inputs, of which ",
                 form_.recompute.size(), " are known");
  inputs_.resize(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].kind != ValueKind::kTensor) continue;
    Seen& seen = inputs_[k];
    at::TensorImpl& impl = *implOf(inputs[k].tensor);
    seen.tensor = sharedTensor(inputs[k].tensor);
    seen.version = static_cast<uint32_t>(seen.tensor._version());
    seen.counter = impl.version_counter();
    if (isStored(k)) {
      seen.tensor = seen.tensor.variable_data();  // gets a version counter of its own
    } else if (form_.recompute[k] != 0) {
      seen.then = sameMemory(impl);
    }
  }
  for (const ir::KeptForm::Kept& kept : form_.kept) {
    if (kept.place.from != From::kInput) continue;
    KINTSUGI_CHECK(kept.place.index < inputs_.size(), "input ", kept.place.index, " of ", inputs_.size());
    Seen& seen = inputs_[kept.place.index];
    if (!seen.then.defined()) seen.then = sameMemory(*seen.tensor.unsafeGetTensorImpl());
  }
}

void KeptTensors::keepOutputs(std::span<const Value> outputs) {
  outputs_.resize(outputs.size());
  const auto keep = [&](const ir::SegmentPlace& place) {
    KINTSUGI_CHECK(place.from != From::kOutput || place.index < outputs.size(), "output ", place.index,
                   " of ", outputs.size());
    if (place.from != From::kOutput || outputs_[place.index].then.defined()) return;
    Seen& seen = outputs_[place.index];
    at::TensorImpl& impl = *implOf(outputs[place.index].tensor);
    seen.then = sameMemory(impl);
    seen.output = c10::weak_intrusive_ptr<at::TensorImpl>(sharedTensor(&impl).getIntrusivePtr());
    seen.counter = impl.version_counter();
    seen.version = seen.counter.enabled() ? seen.counter.current_version() : 0;
  };
  for (const ir::KeptForm::Kept& kept : form_.kept) keep(kept.place);
  for (const ir::KeptForm::Checked& checked : form_.checked) keep(checked.place);
  for (const ir::KeptForm::Leaf& leaf : form_.leaves) keep(leaf.place);
}

void KeptTensors::keepOwn(std::span<Value> own) {
  for (Value& value : own) {
    value.kind = ValueKind::kEmpty;
    own_.push_back(takenTensor(value.tensor));
  }
}

void KeptTensors::clear() {
  inputs_.clear();
  outputs_.clear();
  own_.clear();
  isCleared_ = true;
}

namespace {

// The end of torch's own error, whose words differ between its versions: of a tensor that has been written
// to.
std::string hintOfTorch() {
  const at::Tensor written = at::detail::empty_cpu({1}, at::TensorOptions(at::kFloat));
  const torch::autograd::SavedVariable saved(written, false);
  written.unsafeGetTensorImpl()->bump_version();
  try {
    saved.unpack();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const size_t at = text.find(" Hint: ");
    return at == std::string::npos ? std::string() : text.substr(at);
  }
  return {};
}

}  // namespace

void KeptTensors::raiseModified(const Seen& seen) {
  const at::Tensor tensor = seen.now();
  std::ostringstream text;
  text << "one of the variables needed for gradient computation has been modified by an inplace operation: ["
       << tensor.toString() << ' ' << tensor.sizes() << ']';
  if (const auto& node = tensor.grad_fn()) {
    text << ", which is output " << tensor.output_nr() << " of " << node->name() << ',';
  }
  text << " is at version " << seen.counter.current_version() << "; expected version " << seen.version
       << " instead.";
  if (!torch::autograd::AnomalyMode::is_enabled()) {
    text << hintOfTorch();
  }
  TORCH_CHECK(false, text.str());
}

void KeptTensors::check(uint64_t arrived, const std::vector<bool>& requested) const {
  for (const ir::KeptForm::Checked& checked : form_.checked) {
    if ((checked.outputs & arrived) == 0 || !at(checked.place).isWritten()) continue;
    for (size_t k = 0; k < checked.leads.size(); ++k) {
      if (checked.leads[k] && requested[k]) raiseModified(at(checked.place));
    }
  }
}

const KeptTensors::Seen* KeptTensors::writtenInput(uint64_t arrived) const {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if ((form_.recompute[k] & arrived) != 0 && !isStored(k) && inputs_[k].isWritten()) return &inputs_[k];
  }
  return nullptr;
}

void KeptTensors::checkRecompute(uint64_t arrived) const {
  TORCH_CHECK(!isCleared_, torch::autograd::ERR_BACKWARD_TWICE);
  if (const Seen* seen = writtenInput(arrived)) raiseModified(*seen);
}

bool KeptTensors::take(std::vector<at::Tensor>& out) {
  TORCH_CHECK(!isCleared_ || form_.kept.empty(), torch::autograd::ERR_BACKWARD_TWICE);
  if (!moveLeaves()) return false;
  for (const ir::KeptForm::Kept& kept : form_.kept) {
    if (kept.place.from == From::kOwn) {
      out.push_back(own_[kept.place.index]);
      continue;
    }
    const Seen& seen = at(kept.place);
    out.push_back(kept.now ? seen.now() : seen.then);
    if (kept.now && !liesAs(out.back(), seen.then)) return false;
  }
  return true;
}

// Taped graphs read leaves in place of tensors of the segment. Gives these leaves the memory that the tensors
// have now. False: a tensor has another layout now.
bool KeptTensors::moveLeaves() {
  for (const ir::KeptForm::Leaf& leaf : form_.leaves) {
    at::Tensor& tensor = own_[form_.kept[leaf.kept].place.index];
    const at::Tensor now = at(leaf.place).now();
    if (!now.defined() || hasMemoryOf(now, tensor)) continue;
    if (!liesAs(now, tensor)) return false;
    tensor.set_data(now.variable_data());
  }
  return true;
}

at::Tensor KeptTensors::recomputeInput(size_t k, bool attached) const {
  const Seen& seen = inputs_[k];
  const bool moved = seen.isMoved();
  if (!seen.tensor.requires_grad() && !moved) return seen.tensor;
  at::Tensor alias = seen.tensor;
  if (!attached || !alias.requires_grad()) {
    alias = seen.tensor.detach().requires_grad_(seen.tensor.requires_grad());
  }
  // A leaf that gets memory of another type would lose its place in the graph, so an alias of it gets it.
  if (alias.requires_grad() && (attached || moved)) alias = at::alias(alias);
  if (moved) alias.set_data(seen.then);
  return alias;
}

void KeptTensors::moveInput(size_t k, at::Tensor& alias) const {
  if (alias.defined() && inputs_[k].isMoved()) alias.set_data(inputs_[k].tensor.variable_data());
}

void KeptTensors::moveOutput(size_t k, at::Tensor& output) const {
  if (output.defined() && outputs_[k].isMoved()) output.set_data(outputs_[k].now().variable_data());
}

}  // namespace kintsugi::torchapi
