// Constants of torch's bindings from the numbers that the IR keeps: torch.float32, torch.device("cpu"),
// torch.strided, torch.channels_last.
//
// New references; null with a Python exception pending. GIL. No state.
#pragma once

#include <string>

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

pyapi::Ref<> dtypeObject(int64_t scalarType);
pyapi::Ref<> layoutObject(int64_t layout);
pyapi::Ref<> memoryFormatObject(int64_t format);
pyapi::Ref<> deviceObject(const std::string& text);

}  // namespace kintsugi::torchapi
