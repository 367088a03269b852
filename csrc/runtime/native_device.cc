#include "runtime/native_device.h"

#include <utility>

namespace kintsugi::runtime {

namespace {

void runRange(void* context, int64_t begin, int64_t end) {
  const auto& launch = *static_cast<const KernelLaunch*>(context);
  launch.function(launch.memory, launch.numbers, begin, end);
}

class ProcessorConvolution final : public NativeConvolution {
 public:
  explicit ProcessorConvolution(torchapi::ConvolutionForm form) : folded_(std::move(form)) {}
  torchapi::AtenCall::Status run(torchapi::Value* values) const override { return folded_.run(values); }

 private:
  torchapi::FoldedConvolution folded_;
};

class Processor final : public NativeDevice {
 public:
  void* newTensor(const torchapi::TensorLayout& layout) override { return torchapi::newTensor(layout); }

  void launch(const KernelLaunch& launch) override {
    if (launch.count <= launch.grain) {
      launch.function(launch.memory, launch.numbers, 0, launch.count);
      return;
    }
    KernelLaunch shared = launch;
    torchapi::parallelFor(launch.count, launch.grain, runRange, &shared);
  }

  void synchronize() override {}

  void multiply(const torchapi::ProductShape& shape, const float* left, const float* right,
                float* result) override {
    torchapi::multiplyFloats(shape, left, right, result);
  }

  bool hasConvolutions() const override { return torchapi::hasFoldedConvolutions(); }
  std::unique_ptr<NativeConvolution> makeConvolution(torchapi::ConvolutionForm form) override {
    return std::make_unique<ProcessorConvolution>(std::move(form));
  }

  torchapi::RowUpdateStatus updateRows(const torchapi::RowUpdate& update, void* target, void* index,
                                       void* source) override {
    return torchapi::updateRows(update, target, index, source);
  }
};

}  // namespace

NativeDevice& processor() {
  static Processor device;
  return device;
}

}  // namespace kintsugi::runtime
