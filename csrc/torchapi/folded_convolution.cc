#include "torchapi/folded_convolution.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "support/check.h"
#include "support/content_hash.h"
#include "support/fault.h"
#include "support/target.h"
#include "torchapi/native_tensors.h"
#include "torchapi/tensor_access.h"
#include "torchapi/torch_differences.h"

namespace kintsugi::torchapi {

namespace {

struct Library {
  std::optional<c10::OperatorHandle> pack, run, runAdding;
  bool whole() const { return pack && run && runAdding; }
};

// The operators of oneDNN's library, found by name and number of arguments. Other releases of torch may lack
// them.
const Library& library() {
  static const Library found = [] {
    const auto find = [](const char* name, const char* overload, size_t arguments) {
      auto op = c10::Dispatcher::singleton().findSchema({name, overload});
      return op && op->schema().arguments().size() == arguments ? op : std::nullopt;
    };
    return Library{find("mkldnn::_reorder_convolution_weight", "", 6),
                   find("mkldnn::_convolution_pointwise", "", 10),
                   find("mkldnn::_convolution_pointwise", "binary", 13)};
  }();
  return found;
}

uint64_t hashBytes(const void* data, size_t bytes) {
  const size_t most = target().costs.hashedBytes;
  const auto* from = static_cast<const unsigned char*>(data);
  std::vector<uint64_t> parts((bytes + most - 1) / most);
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto part = static_cast<size_t>(begin); part < static_cast<size_t>(end); ++part) {
      parts[part] = hashContent(from + part * most, std::min(most, bytes - part * most));
    }
  });
  return hashContent(parts.data(), parts.size() * sizeof(uint64_t)) + bytes;
}

// A packed weight, with hashes of the tensors that it was computed from.
struct Packed {
  std::array<uint64_t, 6> hashes{};
  at::Tensor weight, bias;
  bool plain = false;  // folding would overflow a number, so the operators are run one by one
};

}  // namespace

bool hasFoldedConvolutions() {
  const auto precision =
      at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV);
  return library().whole() && at::globalContext().userEnabledMkldnn() && isFullPrecision(precision);
}

struct FoldedConvolution::Impl {
  ConvolutionForm form;
  mutable std::mutex mutex;
  mutable std::shared_ptr<const Packed> packed;

  static at::Tensor tensorAt(const Value* values, uint32_t slot) {
    return slot == ir::kNone ? at::Tensor() : sharedTensor(values[slot].tensor);
  }

  std::array<uint32_t, 6> sources() const {
    return {form.weight, form.bias, form.scale, form.shift, form.mean, form.variance};
  }

  std::shared_ptr<const Packed> fresh(const Value* values) const;
  void fold(const Value* values, Packed& made) const;
  at::Tensor compute(const Value* values, const Packed& with) const;
  at::Tensor computePlain(const Value* values) const;
};

// Returns the packed weight for the parameters as they are now.
std::shared_ptr<const Packed> FoldedConvolution::Impl::fresh(const Value* values) const {
  std::array<uint64_t, 6> hashes{};
  const std::array<uint32_t, 6> slots = sources();
  for (size_t k = 0; k < slots.size(); ++k) {
    if (slots[k] != ir::kNone) {
      const at::TensorImpl& tensor = *implOf(values[slots[k]].tensor);
      hashes[k] = hashBytes(dataPointer(values[slots[k]].tensor),
                            static_cast<size_t>(tensor.numel()) * tensor.itemsize());
    }
  }
  std::shared_ptr<const Packed> known;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    known = packed;
  }
  if (known != nullptr && known->hashes == hashes) {
    return known;
  }
  auto made = std::make_shared<Packed>();
  made->hashes = hashes;
  fold(values, *made);
  const std::lock_guard<std::mutex> lock(mutex);
  packed = made;
  return made;
}

void FoldedConvolution::Impl::fold(const Value* values, Packed& made) const {
  at::Tensor weight = tensorAt(values, form.weight), bias = tensorAt(values, form.bias);
  if (form.mean != ir::kNone) {
    at::Tensor factor = (tensorAt(values, form.variance) + form.epsilon).rsqrt();
    const at::Tensor scale = tensorAt(values, form.scale), shift = tensorAt(values, form.shift);
    factor = scale.defined() ? factor * scale : factor;
    const at::Tensor mean = tensorAt(values, form.mean);
    bias = (bias.defined() ? bias - mean : -mean) * factor;
    bias = shift.defined() ? bias + shift : bias;
    weight = weight * factor.view({-1, 1, 1, 1});
    made.plain = !weight.isfinite().all().item<bool>() || !bias.isfinite().all().item<bool>();
  }
  if (made.plain) {
    return;
  }
  made.bias = bias.defined() ? bias.clone() : bias;
  std::vector<c10::IValue> stack{weight,        form.padding, form.stride,
                                 form.dilation, form.groups,  tensorAt(values, form.input).sizes().vec()};
  library().pack->callBoxed(&stack);
  made.weight = stack.front().toTensor();
}

at::Tensor FoldedConvolution::Impl::compute(const Value* values, const Packed& with) const {
  const c10::List<std::optional<at::Scalar>> none;
  c10::List<std::optional<at::Scalar>> numbers;
  if (form.activation == "leaky_relu") {
    numbers.push_back(at::Scalar(form.slope));
  }
  const c10::IValue bias = with.bias.defined() ? c10::IValue(with.bias) : c10::IValue();
  std::vector<c10::IValue> stack{tensorAt(values, form.input)};
  if (form.added == ir::kNone) {
    const std::string algorithm = form.activation == "gelu" ? "tanh" : "";
    stack.insert(stack.end(), {with.weight, bias, form.padding, form.stride, form.dilation, form.groups,
                               form.activation, numbers, algorithm});
    library().run->callBoxed(&stack);
  } else {
    stack.insert(stack.end(),
                 {tensorAt(values, form.added), with.weight, bias, form.padding, form.stride, form.dilation,
                  form.groups, "add", c10::IValue(1.0), c10::IValue(), none, c10::IValue()});
    library().runAdding->callBoxed(&stack);
  }
  return std::move(stack.front()).toTensor();
}

at::Tensor FoldedConvolution::Impl::computePlain(const Value* values) const {
  at::Tensor x =
      at::conv2d(tensorAt(values, form.input), tensorAt(values, form.weight), tensorAt(values, form.bias),
                 form.stride, form.padding, form.dilation, form.groups);
  if (form.mean != ir::kNone) {
    x = at::batch_norm(x, tensorAt(values, form.scale), tensorAt(values, form.shift),
                       tensorAt(values, form.mean), tensorAt(values, form.variance), false, 0, form.epsilon,
                       false);
  }
  if (form.added != ir::kNone) {
    x = x + tensorAt(values, form.added);
  }
  return form.activation == "swish"        ? at::silu(x)
         : form.activation == "sigmoid"    ? at::sigmoid(x)
         : form.activation == "tanh"       ? at::tanh(x)
         : form.activation == "hardswish"  ? at::hardswish(x)
         : form.activation == "leaky_relu" ? at::leaky_relu(x, form.slope)
         : form.activation == "gelu"       ? at::gelu(x, "tanh")
                                           : x;
}

FoldedConvolution::FoldedConvolution(ConvolutionForm form) : impl_(std::make_unique<Impl>()) {
  KINTSUGI_CHECK(form.input != ir::kNone && form.weight != ir::kNone && form.result != ir::kNone,
                 "a convolution without ", form.result != ir::kNone ? "operands" : "a result");
  KINTSUGI_CHECK((form.mean == ir::kNone) == (form.variance == ir::kNone), "one of two statistics");
  impl_->form = std::move(form);
}
FoldedConvolution::~FoldedConvolution() = default;

AtenCall::Status FoldedConvolution::run(Value* values) const {
  try {
    faultPoint("folded convolution");
    const std::shared_ptr<const Packed> packed = impl_->fresh(values);
    at::Tensor made = packed->plain ? impl_->computePlain(values) : impl_->compute(values, *packed);
    Value& result = values[impl_->form.result];
    clear(result);
    result.tensor = givenTensor(std::move(made));
    result.kind = ValueKind::kTensor;
  } catch (const InternalError&) {  // an error of ours, not of the operator
    throw;
  } catch (...) {
    return AtenCall::Status::kRaised;
  }
  return AtenCall::Status::kOk;
}

}  // namespace kintsugi::torchapi
