// Types of elements and devices of tensors, by torch's numbers, and their names (`f32`, `cuda:0`).
//
// tests/python/test_tensor_descriptions.py compares them with torch's. Constant data, no GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kintsugi::ir {

enum class DType : int8_t {
#define KINTSUGI_DTYPE(name, text) k##name,
#include "ir/dtypes.def"
};

// Empty when the number is not known here.
std::string_view dtypeName(int64_t scalarType);
inline std::string_view dtypeName(DType dtype) { return dtypeName(static_cast<int64_t>(dtype)); }
std::optional<DType> dtypeOf(std::string_view name);

struct Device {
  int8_t type = 0;     // c10::DeviceType; 0: the CPU
  int16_t index = -1;  // -1: none, as the CPU's
  bool isCpu() const { return type == 0; }
  bool operator==(const Device&) const = default;
};

std::string deviceName(Device device);
std::optional<Device> deviceOf(std::string_view name);

}  // namespace kintsugi::ir
