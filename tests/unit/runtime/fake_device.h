// A device with memory of its own, for tests of what a plan may rely on (runtime/native_device.h).
//
// A tensor of its has two memories: the one that the processor sees, and the device's. A launch is only
// noted; synchronize() runs what was launched, in order, on the device's memory, and copies that to where the
// processor sees it. So whoever reads a result too early reads what was there before, and whoever changes a
// launch's numbers too early changes nothing.
//
//   FakeDevice device;
//   plan.device = &device;
//   ... run the plan ...
//   EXPECT_EQ(device.launches, 2u);
//   device.synchronize();
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/native_device.h"

namespace kintsugi::runtime::test {

class FakeDevice final : public NativeDevice {
 public:
  ~FakeDevice() override { synchronize(); }

  void* newTensor(const torchapi::TensorLayout& layout) override {
    void* tensor = torchapi::newTensor(layout);
    const torchapi::MemoryExtent extent = torchapi::memoryExtent(tensor);
    const auto bytes = static_cast<size_t>(extent.end - extent.begin);
    std::memset(const_cast<char*>(extent.begin), kUnwritten, bytes);
    blocks_[extent.begin] = std::vector<char>(bytes, kUnwritten);
    if (holdsTensors) {
      torchapi::retainTensor(tensor);  // memory is freed in the order of the launches, as on a stream
      alive_.push_back(tensor);
    }
    ++tensors;
    return tensor;
  }

  void launch(const KernelLaunch& launch) override {
    ++launches;
    const size_t count = memoryCounts.at(launch.function);
    std::vector<void*> memory;
    for (size_t k = 0; k < count; ++k) memory.push_back(ownAddress(launch.memory[k]));
    std::vector<int64_t> numbers(launch.numbers, launch.numbers + numberCount);
    std::vector<std::pair<uint32_t, int64_t>> values;  // parameters: the bits of numbers
    for (const uint32_t at : launch.values) {
      values.emplace_back(at, 0);
      std::memcpy(&values.back().second, launch.memory[at], sizeof(int64_t));
    }
    waiting_.push_back([function = launch.function, memory, numbers, values, units = launch.count]() mutable {
      for (auto& [at, bits] : values) memory[at] = &bits;
      function(memory.data(), numbers.data(), 0, units);
    });
  }

  void multiply(const torchapi::ProductShape& shape, const float* left, const float* right,
                float* result) override {
    ++products;
    const auto own = [this](const float* address) {
      return static_cast<float*>(ownAddress(const_cast<float*>(address)));
    };
    waiting_.push_back([shape, left = own(left), right = own(right), result = own(result)] {
      for (int64_t row = 0; row < shape.m; ++row) {
        for (int64_t column = 0; column < shape.n; ++column) {
          float sum = 0;
          for (int64_t k = 0; k < shape.k; ++k)
            sum += left[row * shape.leftStride + k] * right[k * shape.rightStride + column];
          result[row * shape.resultStride + column] = sum;
        }
      }
    });
  }

  bool hasConvolutions() const override { return convolution != nullptr; }
  std::unique_ptr<NativeConvolution> makeConvolution(torchapi::ConvolutionForm form) override {
    if (convolution == nullptr) return nullptr;
    return std::make_unique<Convolution>(*this, form.input, form.result);
  }

  // Only additions of rows of floats. An index has to be looked at, so what was launched before is waited
  // for; the update itself runs later.
  torchapi::RowUpdateStatus updateRows(const torchapi::RowUpdate& update, void* target, void* index,
                                       void* source) override {
    ++updates;
    if (update.kind != torchapi::RowUpdateKind::kAddRows || update.dim != 0)
      return torchapi::RowUpdateStatus::kOther;
    synchronize();
    const int64_t count = torchapi::tensorSize(index, 0), places = torchapi::tensorSize(target, 0);
    const auto* at = static_cast<const int64_t*>(torchapi::dataPointer(index));
    const std::vector<int64_t> rows(at, at + count);
    for (const int64_t row : rows) {
      if (row < 0 || row >= places) return torchapi::RowUpdateStatus::kFailed;
    }
    const int64_t width = torchapi::tensorSize(target, 1);
    auto* to = static_cast<float*>(ownAddress(torchapi::dataPointer(target)));
    const auto* from = static_cast<const float*>(ownAddress(torchapi::dataPointer(source)));
    waiting_.push_back([rows, width, to, from] {
      for (size_t k = 0; k < rows.size(); ++k) {
        for (int64_t c = 0; c < width; ++c)
          to[rows[k] * width + c] += from[static_cast<int64_t>(k) * width + c];
      }
    });
    return torchapi::RowUpdateStatus::kDone;
  }

  void synchronize() override {
    ++synchronizations;
    for (const auto& work : waiting_) work();
    waiting_.clear();
    for (const auto& [address, own] : blocks_)
      std::memcpy(const_cast<char*>(address), own.data(), own.size());
    if (keepsTensors) return;
    for (void* tensor : alive_) torchapi::releaseTensor(tensor);
    alive_.clear();
    blocks_.clear();
  }

  // How many addresses a kernel takes: a real kernel's code knows it.
  std::map<KernelFunction, size_t> memoryCounts;
  size_t numberCount = 1;
  bool holdsTensors = true;  // until synchronize(); else a run may be the only owner of one
  bool keepsTensors = true;  // for later runs, which may read them
  // What a convolution of this device does to its operand; null: it has none.
  void* (*convolution)(FakeDevice& device, void* tensor) = nullptr;
  size_t launches = 0, products = 0, tensors = 0, synchronizations = 0, updates = 0;

 private:
  class Convolution final : public NativeConvolution {
   public:
    Convolution(FakeDevice& device, uint32_t from, uint32_t to) : device_(device), from_(from), to_(to) {}
    torchapi::AtenCall::Status run(torchapi::Value* values) const override {
      values[to_].tensor = device_.convolution(device_, values[from_].tensor);
      values[to_].kind = torchapi::ValueKind::kTensor;
      return torchapi::AtenCall::Status::kOk;
    }

   private:
    FakeDevice& device_;
    uint32_t from_, to_;
  };

  static constexpr char kUnwritten = 0x55;

  void* ownAddress(void* address) {
    auto after = blocks_.upper_bound(static_cast<const char*>(address));
    if (after == blocks_.begin()) return address;
    auto& [begin, own] = *std::prev(after);
    const auto offset = static_cast<size_t>(static_cast<const char*>(address) - begin);
    return offset < own.size() ? own.data() + offset : address;  // else memory that both see
  }

  std::map<const char*, std::vector<char>> blocks_;  // by what the processor sees
  std::vector<void*> alive_;                         // owned
  std::vector<std::function<void()>> waiting_;
};

}  // namespace kintsugi::runtime::test
