#include "runtime/native_frame.h"

#include <algorithm>

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;

namespace {

// The inputs that steps read or write through their addresses, and whose memory is held during a run.
std::vector<NativeFrame::Held> heldOf(const NativePlan& plan) {
  std::vector<NativeFrame::Held> held(plan.inputs.size());
  const auto want = [&held](const NativeMemory& memory) {
    if (memory.slot < held.size()) {
      held[memory.slot].wanted = true;
    }
  };
  for (const NativeKernel& kernel : plan.kernels) {
    std::for_each(kernel.memory.begin(), kernel.memory.end(), want);
  }
  for (const NativeProduct& product : plan.products) {
    want(product.left);
    want(product.right);
    want(product.result);
  }
  for (const NativeRead& read : plan.reads) {
    want(read.from);
  }
  return held;
}

}  // namespace

NativeFrame::NativeFrame(const NativePlan& of) : plan(&of), held(heldOf(of)) {
  values.resize(of.slotCount);
  sizes.resize(of.sizeCount);
  kept.resize(of.keptCount, nullptr);
}

NativeFrame::~NativeFrame() {
  for (Value& value : values) {
    torchapi::clear(value);
  }
  for (void* tensor : kept) {
    if (tensor != nullptr) {
      torchapi::releaseTensor(tensor);
    }
  }
}

HeldInputs::HeldInputs(NativeFrame& frame) : frame_(frame) {
  for (size_t k = 0; k < frame.held.size(); ++k) {
    if (frame.held[k].wanted && frame.values[k].kind == ValueKind::kTensor) {
      frame.held[k].memory = torchapi::holdMemory(frame.values[k].tensor);
    }
  }
}

HeldInputs::~HeldInputs() {
  for (NativeFrame::Held& held : frame_.held) {
    torchapi::releaseMemory(held.memory);
  }
}

}  // namespace kintsugi::runtime
