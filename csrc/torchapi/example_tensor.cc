#include "torchapi/example_tensor.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "support/check.h"
#include "torchapi/tensor_access.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

namespace {

// The number of elements that the sizes and strides span.
int64_t spanOf(const ir::TensorDesc& info) {
  int64_t last = 0;
  for (size_t d = 0; d < info.sizes.size(); ++d) {
    if (info.sizes[d] == 0) {
      return 0;
    }
    last += (info.sizes[d] - 1) * info.strides[d];
  }
  return last + 1;
}

at::Tensor make(const ir::TensorDesc& info) {
  const c10::Device device(static_cast<c10::DeviceType>(info.device.type),
                           static_cast<c10::DeviceIndex>(info.device.index));
  const auto options = at::TensorOptions().dtype(scalarTypeOf(info.dtype)).device(device);
  const at::NoGradGuard noGrad;
  const at::Tensor memory = at::zeros({spanOf(info)}, options);
  at::Tensor made = at::empty({0}, options);
  made.set_(memory.storage(), 0, info.sizes, info.strides);
  made.set_requires_grad(info.requiresGrad);
  return made;
}

}  // namespace

pyapi::Ref<> exampleOf(const ir::TensorDesc& info) {
  if (!info.plain || info.isConj || info.isNeg || info.isOpen() || info.strides.size() != info.sizes.size()) {
    return {};
  }
  try {
    return pyapi::steal(THPVariable_Wrap(make(info)));
  } catch (const InternalError&) {  // an error of ours, not of the tensor's maker
    throw;
  } catch (const std::exception&) {
    PyErr_Clear();
    return {};
  }
}

}  // namespace kintsugi::torchapi
