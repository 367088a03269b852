#include "torchapi/python_constants.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

namespace kintsugi::torchapi {

namespace {

template <typename Make>
pyapi::Ref<> guarded(const Make& make) {
  HANDLE_TH_ERRORS
  return make();
  END_HANDLE_TH_ERRORS_RET({})
}

}  // namespace

pyapi::Ref<> dtypeObject(int64_t scalarType) {
  return guarded([&] {
    return pyapi::newRef(
        reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(scalarType))));
  });
}

pyapi::Ref<> layoutObject(int64_t layout) {
  return guarded([&] {
    return pyapi::newRef(reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<at::Layout>(layout))));
  });
}

pyapi::Ref<> memoryFormatObject(int64_t format) {
  return guarded(
      [&] { return pyapi::newRef(torch::utils::getTHPMemoryFormat(static_cast<at::MemoryFormat>(format))); });
}

pyapi::Ref<> deviceObject(const std::string& text) {
  return guarded([&] { return pyapi::steal(THPDevice_New(c10::Device(text))); });
}

}  // namespace kintsugi::torchapi
