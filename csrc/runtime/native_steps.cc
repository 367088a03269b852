#include "runtime/native_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/replay_program.h"
#include "support/check.h"
#include "torchapi/op_effects.h"

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;

namespace {

// Sets the grad mode that an operator was recorded in, and restores the thread's own.
class GradModeScope {
 public:
  GradModeScope() : outside_(torchapi::gradMode()), now_(outside_) {}
  ~GradModeScope() { set(outside_); }
  GradModeScope(const GradModeScope&) = delete;

  void enter(GradSetting setting) {
    set(setting == GradSetting::kOutside ? outside_ : setting == GradSetting::kOn);
  }

 private:
  void set(bool mode) {
    if (mode != now_) {
      torchapi::setGradMode(mode);
      now_ = mode;
    }
  }

  const bool outside_;
  bool now_;
};

const torchapi::TensorLayout& layoutOf(const NativeLayout& layout, NativeFrame& frame) {
  if (!layout.varies()) [[likely]] {
    return layout;
  }
  frame.layout = layout;
  for (const NativePatch& patch : layout.varying.sizes) {
    frame.layout.sizes[patch.at] = frame.sizes[patch.from];
  }
  for (const NativePatch& patch : layout.varying.strides) {
    frame.layout.strides[patch.at] = frame.sizes[patch.from];
  }
  return frame.layout;
}

int64_t sumOf(const NativeSum& sum, const NativeFrame& frame) {
  int64_t out = 0;
  for (const NativeSum::Term& term : sum.terms) {
    int64_t part = term.factor;
    for (const uint32_t at : term.parts) {
      part *= frame.sizes[at];
    }
    out += part;
  }
  return out;
}

bool loadSizes(const NativeBinding::Tensor& tensor, NativeFrame& frame) {
  const Value& value = frame.values[tensor.slot];
  if (value.kind != ValueKind::kTensor ||
      !torchapi::hasForm(value.tensor, tensor.dtype, tensor.rank, tensor.contiguous)) {
    return false;
  }
  for (const NativeBinding::Load& load : tensor.loads) {
    const int64_t number = load.stride ? torchapi::tensorStride(value.tensor, load.dim)
                                       : torchapi::tensorSize(value.tensor, load.dim);
    const bool ok =
        load.expected != NativeBinding::Load::kVaries ? number == load.expected : load.stride || number > 1;
    if (!ok) {
      return false;
    }
    if (load.to != ir::kNone) {
      frame.sizes[load.to] = number;
    }
  }
  return true;
}

bool bind(const NativeBinding& binding, NativeFrame& frame) {
  for (const NativeBinding::Tensor& tensor : binding.tensors) {
    if (!loadSizes(tensor, frame)) {
      return false;
    }
  }
  for (const auto& [to, sum] : binding.sums) {
    frame.sizes[to] = sumOf(sum, frame);
  }
  return std::all_of(binding.checks.begin(), binding.checks.end(), [&](const NativeBinding::Check& check) {
    const int64_t difference = sumOf(check.difference, frame);
    return difference < 0 ? check.less : difference == 0 ? check.zero : check.more;
  });
}

const std::vector<int64_t>& numbersOf(const NativeKernel& kernel, NativeFrame& frame) {
  if (kernel.patches.empty()) [[likely]] {
    return kernel.numbers;
  }
  frame.numbers = kernel.numbers;
  for (const NativePatch& patch : kernel.patches) {
    frame.numbers[patch.at] = frame.sizes[patch.from];
  }
  return frame.numbers;
}

// Reuses the tensor that this place of kept memory had before, unless something still refers to it.
void* keptTensor(const NativeMade& made, NativeFrame& frame) {
  void*& kept = frame.kept[made.place];
  if (kept == nullptr || !torchapi::isSoleOwner(kept)) {
    void* fresh = frame.plan->device->newTensor(made.layout);
    if (kept != nullptr) {
      torchapi::releaseTensor(kept);
    }
    kept = fresh;
  }
  torchapi::retainTensor(kept);
  return kept;
}

void make(const NativeMade& made, NativeFrame& frame) {
  Value& value = frame.values[made.slot];
  if (made.over != ir::kNone && torchapi::isSoleOwner(frame.values[made.over].tensor)) {
    value = frame.values[made.over];
    torchapi::retainTensor(value.tensor);
    return;
  }
  value.tensor = made.place != ir::kNone ? keptTensor(made, frame)
                                         : frame.plan->device->newTensor(layoutOf(made.layout, frame));
  value.kind = ValueKind::kTensor;
}

char* pointerTo(const NativeMemory& memory, NativeFrame& frame) {
  Value& value = frame.values[memory.slot];
  if (value.kind != ValueKind::kTensor) {
    return reinterpret_cast<char*>(&value.i);  // a number, an i64 or an f64
  }
  if (memory.slot < frame.held.size()) {
    return static_cast<char*>(frame.held[memory.slot].memory.first) + memory.offset;
  }
  return static_cast<char*>(torchapi::dataPointer(value.tensor)) + memory.offset;
}

void runProduct(const NativeProduct& product, NativeFrame& frame) {
  for (const NativeMade& made : product.made) {
    make(made, frame);
  }
  torchapi::ProductShape shape = product.shape;
  shape.m = product.rowsFrom == ir::kNone ? shape.m : frame.sizes[product.rowsFrom];
  auto data = [&frame](const NativeMemory& memory) {
    return reinterpret_cast<float*>(pointerTo(memory, frame));
  };
  frame.plan->device->multiply(shape, data(product.left), data(product.right), data(product.result));
}

// The number of pieces that threads divide among themselves: elements, rows, or pieces of a product.
int64_t unitsOf(const NativeKernel& kernel, const std::vector<int64_t>& numbers) {
  int64_t count = kernel.flat ? numbers[0] : 1;
  for (size_t d = 0; d < kernel.outerRank; ++d) {
    count *= numbers[1 + d];
  }
  if (kernel.chunk == 0) {
    return count;
  }
  const int64_t strips = (numbers[0] + kernel.strip - 1) / kernel.strip;
  const int64_t rows = kernel.batched ? numbers[kernel.outerRank] : count;
  return rows == 0 ? 0 : count / rows * ((rows + kernel.chunk - 1) / kernel.chunk) * strips;
}

// False: an index was out of range.
bool runKernel(const NativeKernel& kernel, int64_t minWorkPerThread, NativeFrame& frame) {
  for (const NativeMade& made : kernel.made) {
    make(made, frame);
  }
  frame.memory.resize(kernel.memory.size());
  for (size_t k = 0; k < kernel.memory.size(); ++k) {
    frame.memory[k] = pointerTo(kernel.memory[k], frame);
    KINTSUGI_DCHECK((frame.values[kernel.memory[k].slot].kind != ValueKind::kTensor) ==
                        (std::ranges::find(kernel.values, k) != kernel.values.end()),
                    "an address of a number that the device is not told of, or of a tensor: ", k);
  }
  frame.outside = 0;
  if (kernel.checks) {
    frame.memory.push_back(&frame.outside);
  }
  const std::vector<int64_t>& numbers = numbersOf(kernel, frame);
  const int64_t count = unitsOf(kernel, numbers);
  if (count <= 0) {
    return true;
  }
  const int64_t unit =
      kernel.flat || kernel.chunk != 0 ? kernel.cost : kernel.cost * std::max<int64_t>(1, numbers[0]);
  const int64_t grain = std::max<int64_t>(1, minWorkPerThread / unit);
  NativeDevice& device = *frame.plan->device;
  device.launch({kernel.function, numbers.data(), frame.memory.data(), count, grain, kernel.values});
  if (kernel.checks) {
    device.synchronize();
  }
  return frame.outside == 0;
}

void runView(const NativeView& view, NativeFrame& frame) {
  Value& value = frame.values[view.to];
  value.tensor =
      torchapi::aliasTensor(frame.values[view.from].tensor, layoutOf(view.layout, frame), view.offset);
  value.kind = ValueKind::kTensor;
}

void runNumber(const NativeNumber& number, NativeFrame& frame) {
  Value& value = frame.values[number.slot];
  value.i = number.from == ir::kNone ? number.value : frame.sizes[number.from];
  value.kind = ValueKind::kInt;
}

void runRead(const NativeRead& read, NativeFrame& frame) {
  frame.plan->device->synchronize();
  const char* from = pointerTo(read.from, frame);
  Value& value = frame.values[read.slot];
  const auto load = [from](auto& number) { std::memcpy(&number, from, sizeof(number)); };
  float single = 0;
  int32_t small = 0;
  switch (read.type) {
    case NativeRead::Type::kF32:
      load(single);
      value.f = single;
      break;
    case NativeRead::Type::kF64:
      load(value.f);
      break;
    case NativeRead::Type::kI32:
      load(small);
      value.i = small;
      break;
    case NativeRead::Type::kI64:
      load(value.i);
      break;
  }
  const bool isFloat = read.type == NativeRead::Type::kF32 || read.type == NativeRead::Type::kF64;
  value.kind = isFloat ? ValueKind::kFloat : ValueKind::kInt;
}

bool isWithin(const Value& number, double most) {
  if (number.kind == ValueKind::kInt) {
    return number.i != std::numeric_limits<int64_t>::min() && std::abs(static_cast<double>(number.i)) <= most;
  }
  return number.kind != ValueKind::kFloat || !std::isfinite(number.f) || std::abs(number.f) <= most;
}

// Are the numbers that are bound so far within the ranges that kernels take?
bool areWithin(const NativePlan& plan, const NativeFrame& frame) {
  return std::all_of(plan.limits.begin(), plan.limits.end(),
                     [&](const auto& limit) { return isWithin(frame.values[limit.first], limit.second); });
}

bool runTape(const NativeCall::Tape& tape, NativeFrame& frame) {
  const auto valuesAt = [&frame](const std::vector<uint32_t>& slots) {
    std::vector<Value> values;
    for (const uint32_t slot : slots) {
      values.push_back(frame.values[slot]);
    }
    return values;
  };
  std::vector<Value> made(tape.made.size());
  if (!torchapi::RequestedTapes::isRequested(tape.number)) {
    torchapi::skipTape(valuesAt(tape.leaves), made);
  } else if (!torchapi::runTape(valuesAt(tape.results), valuesAt(tape.leaves), valuesAt(tape.gradients),
                                made)) {
    return false;
  }
  for (size_t k = 0; k < made.size(); ++k) {
    if (tape.made[k] == ir::kNone) {
      torchapi::clear(made[k]);
    } else {
      frame.values[tape.made[k]] = made[k];
    }
  }
  return true;
}

// Has a result the layout that kernels expect?
bool isAsExpected(const NativeCall& call, const NativeCall::Result& result, NativeFrame& frame) {
  Value& value = frame.values[result.slot];
  if (value.kind != ValueKind::kTensor) {
    return false;
  }
  return torchapi::hasLayout(value.tensor, result.layout) ||
         (call.restride && torchapi::restride(value.tensor, result.layout));
}

torchapi::AtenCall::Status writeInPlace(const NativeCall& call, NativeFrame& frame) {
  using Status = torchapi::AtenCall::Status;
  if (call.rows) {
    const Value& target = frame.values[call.target];
    const torchapi::RowUpdateStatus status = frame.plan->device->updateRows(
        call.rows->update, target.tensor, frame.values[call.rows->index].tensor,
        frame.values[call.rows->source].tensor);
    if (status == torchapi::RowUpdateStatus::kDone) {
      torchapi::retainTensor(target.tensor);
      frame.values[call.rows->result] = target;
      return Status::kOk;
    }
    if (status == torchapi::RowUpdateStatus::kFailed) {
      return Status::kChanged;
    }
  }
  return call.inPlace->run(frame.values.data(), frame.calls);
}

torchapi::AtenCall::Status runInPlace(const NativeCall& call, NativeFrame& frame) {
  Value& target = frame.values[call.target];
  if (call.lastLook && torchapi::isSoleOwner(target.tensor)) {
    return writeInPlace(call, frame);
  }
  void* before = target.tensor;
  target.tensor = torchapi::copyTensor(before);
  const torchapi::AtenCall::Status status = writeInPlace(call, frame);
  torchapi::releaseTensor(std::exchange(target.tensor, before));
  return status;
}

bool runCall(const NativeCall& call, NativeFrame& frame) {
  torchapi::AtenCall::Status status = torchapi::AtenCall::Status::kOk;
  if (call.tape != nullptr) {
    if (!runTape(*call.tape, frame)) {
      return false;
    }
  } else if (call.inPlace != nullptr) {
    const torchapi::BelowAutograd scope;
    status = runInPlace(call, frame);
  } else if (call.convolution != nullptr) {
    const torchapi::BelowAutograd scope;
    status = call.convolution->run(frame.values.data());
  } else if (call.taped != nullptr) {
    status = call.taped->run(frame.values.data(), frame.calls);
  } else if (call.whole) {
    status = call.call->run(frame.values.data(), frame.calls);
  } else {
    const torchapi::BelowAutograd scope;
    status = call.call->run(frame.values.data(), frame.calls);
  }
  if (status == torchapi::AtenCall::Status::kRaised) {
    frame.calls.dropError();
  }
  return status == torchapi::AtenCall::Status::kOk &&
         std::all_of(call.results.begin(), call.results.end(),
                     [&](const NativeCall::Result& result) { return isAsExpected(call, result, frame); });
}

bool bindResults(const NativePlan& plan, const NativeCall& call, NativeFrame& frame) {
  return call.binding == ir::kNone || bind(plan.bindings[call.binding], frame);
}

}  // namespace

bool runSteps(const NativePlan& plan, NativeFrame& frame) {
  GradModeScope grad;
  if (!bind(plan.bindings.front(), frame) || !areWithin(plan, frame)) {
    return false;
  }
  frame.begun = true;
  for (size_t at = frame.steady ? plan.steadySteps : 0; at < plan.steps.size(); ++at) {
    const NativePlanStep& step = plan.steps[at];
    switch (step.kind) {
      case NativeStepKind::kKernel:
        if (!runKernel(plan.kernels[step.index], plan.minWorkPerThread, frame)) {
          return false;
        }
        break;
      case NativeStepKind::kView:
        runView(plan.views[step.index], frame);
        break;
      case NativeStepKind::kProduct:
        runProduct(plan.products[step.index], frame);
        break;
      case NativeStepKind::kCall:
        grad.enter(plan.calls[step.index].grad);
        if (!runCall(plan.calls[step.index], frame) || !bindResults(plan, plan.calls[step.index], frame) ||
            !areWithin(plan, frame)) {
          return false;
        }
        break;
      case NativeStepKind::kNumber:
        runNumber(plan.values[step.index], frame);
        break;
      case NativeStepKind::kRead:
        runRead(plan.reads[step.index], frame);
        if (!areWithin(plan, frame)) {
          return false;
        }
        break;
      case NativeStepKind::kScalar:
        if (!runScalar(plan.trace, plan.trace.code[step.index], frame.values.data()) ||
            !areWithin(plan, frame)) {
          return false;
        }
        break;
    }
    for (uint32_t k = 0; k < step.dropCount; ++k) {
      torchapi::clear(frame.values[plan.drops[step.firstDrop + k]]);
    }
  }
  return true;
}

}  // namespace kintsugi::runtime
