// What a segment's native code does in one run: kernels, calls of operators and views, over one array of
// values.
//
// Ownership: a NativePlan owns its calls and holds the machine code of its kernels. Threads: constant; each
// run has a NativeFrame of its own. GIL: not needed. Invalidation: none; whether a run fits is checked when
// it starts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "torchapi/aten_call.h"
#include "torchapi/native_tensors.h"

namespace kintsugi::runtime {

using KernelFunction = void (*)(void* const* memory, const int64_t* numbers, int64_t begin, int64_t end);

struct NativeKernel {
  struct Memory {
    uint32_t slot = 0;
    int64_t offset = 0;  // bytes
  };
  struct Made {
    uint32_t slot = 0;
    torchapi::TensorLayout layout;
  };
  KernelFunction function = nullptr;
  std::shared_ptr<const void> code;
  std::vector<Memory> memory;
  std::vector<Made> made;  // tensors to make before
  std::vector<int64_t> numbers;
  int64_t count = 0;  // rows, or elements
  int64_t grain = 1;  // of them that are worth a thread
};

struct NativeView {
  uint32_t from = 0;
  uint32_t to = 0;
  torchapi::TensorLayout layout;
  int64_t offset = 0;  // elements
};

// The grad mode that an operator runs in: that of the caller, or one that the segment has set.
enum class GradSetting : uint8_t { kOutside, kOff, kOn };

struct NativeCall {
  struct Result {
    uint32_t slot = 0;
    torchapi::TensorLayout layout;
  };
  std::unique_ptr<torchapi::AtenCall> call;
  std::vector<Result> results;  // how they have to lie, for kernels to read them
  bool whole = false;           // with autograd's part: the outside sees whose view the result is
  GradSetting grad = GradSetting::kOutside;
};

enum class NativeStepKind : uint8_t { kKernel, kCall, kView };

struct NativePlanStep {
  NativeStepKind kind = NativeStepKind::kKernel;
  uint32_t index = 0;
  uint32_t firstDrop = 0;  // into `drops`: slots that are used here last
  uint32_t dropCount = 0;
};

struct NativePlan {
  size_t slotCount = 0;
  std::vector<torchapi::TensorInfo> inputs;  // slots 0, 1 ...: what they have to be
  std::vector<uint32_t> outputs;             // slots; kNone: an undefined tensor
  std::vector<NativeKernel> kernels;
  std::vector<NativeCall> calls;
  std::vector<NativeView> views;
  std::vector<NativePlanStep> steps;
  std::vector<uint32_t> drops;
  bool inputsRequireGrad = false;
  bool gradOutside = false;  // some operator runs in the caller's grad mode
  bool gradOn = false;       // some operator runs with the grad mode on
  std::optional<bool> gradModeAfter;
};

// Storage of one run, reused.
struct NativeFrame {
  std::vector<torchapi::Value> values;  // by slot
  std::vector<void*> memory;
  torchapi::CallState calls;
};

}  // namespace kintsugi::runtime
