#include "torchapi/taped_call.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <utility>

#include "support/check.h"
#include "support/fault.h"
#include "torchapi/native_tensors.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

torch::autograd::variable_list tensorsOf(std::span<const Value> values) {
  torch::autograd::variable_list out;
  for (const Value& value : values) {
    out.push_back(sharedTensor(value.tensor));
  }
  return out;
}

}  // namespace

void* newLeaf(void* impl) {
  at::TensorImpl& from = *implOf(impl);
  at::Tensor leaf(from.shallow_copy_and_detach(from.version_counter(), true));
  leaf.set_requires_grad(true);
  return givenTensor(std::move(leaf));
}

AtenCall::Status TapedCall::run(Value* values, CallState& state) const {
  KINTSUGI_CHECK(follows_.size() == leaves_.size(), follows_.size(), " arguments and ", leaves_.size(),
                 " leaves");
  std::vector<void*> before;
  for (size_t k = 0; k < follows_.size(); ++k) {
    Value& value = values[follows_[k]];
    Value& leaf = values[leaves_[k]];
    before.push_back(value.tensor);
    leaf.tensor = newLeaf(value.tensor);
    leaf.kind = ValueKind::kTensor;
    value.tensor = leaf.tensor;  // borrowed for the call
  }
  AtenCall::Status status;
  {
    const c10::AutoGradMode on(true);
    status = call_->run(values, state);
  }
  // In reverse order, because the same value may occur twice.
  for (size_t k = follows_.size(); k-- > 0;) {
    values[follows_[k]].tensor = before[k];
  }
  return status;
}

namespace {

thread_local std::exception_ptr tapeError;

}  // namespace

bool runTape(std::span<const Value> results, std::span<const Value> leaves, std::span<const Value> gradients,
             std::span<Value> out) {
  KINTSUGI_CHECK(results.size() == gradients.size() && out.size() <= leaves.size(), "a tape of ",
                 results.size(), " results and ", leaves.size(), " leaves");
  try {
    faultPoint("tape");
    const torch::autograd::variable_list targets = tensorsOf(leaves);
    torch::autograd::variable_list made =
        torch::autograd::grad(tensorsOf(results), targets, tensorsOf(gradients), /*retain_graph=*/true,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t k = 0; k < out.size(); ++k) {
      at::Tensor gradient = made[k].defined() ? std::move(made[k]) : at::zeros_like(targets[k]);
      clear(out[k]);
      out[k].tensor = givenTensor(gradient.detach());
      out[k].kind = ValueKind::kTensor;
    }
  } catch (const InternalError&) {  // an error of ours, not of the operator
    throw;
  } catch (...) {
    tapeError = std::current_exception();
    return false;
  }
  return true;
}

namespace {

thread_local const std::vector<bool>* requestedTapes = nullptr;

}  // namespace

RequestedTapes::RequestedTapes(const std::vector<bool>& tapes) { requestedTapes = &tapes; }
RequestedTapes::~RequestedTapes() { requestedTapes = nullptr; }
bool RequestedTapes::isRequested(uint32_t number) {
  return requestedTapes == nullptr || number >= requestedTapes->size() || (*requestedTapes)[number];
}

void skipTape(std::span<const Value> leaves, std::span<Value> out) {
  KINTSUGI_CHECK(out.size() <= leaves.size(), "a tape of ", leaves.size(), " leaves");
  const BelowAutograd scope;
  for (size_t k = 0; k < out.size(); ++k) {
    clear(out[k]);
    out[k].tensor = givenTensor(at::zeros_like(sharedTensor(leaves[k].tensor)));
    out[k].kind = ValueKind::kTensor;
  }
}

std::exception_ptr takeTapeError() { return std::exchange(tapeError, nullptr); }

}  // namespace kintsugi::torchapi
