#include "ir/dtype.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace kintsugi::ir {

namespace {

constexpr auto kNames = std::to_array<std::string_view>({
#define KINTSUGI_DTYPE(name, text) text,
#include "ir/dtypes.def"
});

// By c10::DeviceType.
constexpr auto kDevices = std::to_array<std::string_view>({
    "cpu",   "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",  "fpga", "maia", "xla",           "vulkan",
    "metal", "xpu",  "mps",    "meta",   "hpu",    "ve",    "lazy", "ipu",  "mtia", "privateuseone",
});

}  // namespace

std::string_view dtypeName(int64_t scalarType) {
  if (scalarType < 0 || scalarType >= static_cast<int64_t>(kNames.size())) {
    return {};
  }
  return kNames[static_cast<size_t>(scalarType)];
}

std::optional<DType> dtypeOf(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<DType>(found - kNames.begin()));
}

std::string deviceName(Device device) {
  const auto type = static_cast<size_t>(device.type);
  std::string name(type < kDevices.size() ? kDevices[type] : std::string_view());
  return device.index < 0 ? name : name + ":" + std::to_string(device.index);
}

std::optional<Device> deviceOf(std::string_view name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const auto* const found = std::find(kDevices.begin(), kDevices.end(), name.substr(0, colon));
  if (found == kDevices.end()) return std::nullopt;
  Device device{static_cast<int8_t>(found - kDevices.begin()), -1};
  if (colon == name.size()) return device;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + colon + 1, end, device.index);
  const bool isIndex = error == std::errc() && rest == end && device.index >= 0;
  return isIndex ? std::optional(device) : std::nullopt;
}

}  // namespace kintsugi::ir
