#include "driver/native_convolutions.h"

#include "driver/fx_segments.h"
#include "passes/fold_convolutions.h"
#include "passes/segment_passes.h"

namespace kintsugi::driver {

std::optional<NativeSegmentInfo> withFoldedConvolutions(const NativeSegmentInfo& info) {
  if (info.strict || info.callsOnly || info.restride || !runtime::processor().hasConvolutions()) {
    return std::nullopt;
  }
  NativeSegmentInfo changed = info;
  changed.restride = true;
  const bool pays =
      passes::foldAndLayOut({changed.segment, {.traits = operatorTraits, .contract = info.contract}});
  return pays ? std::optional(std::move(changed)) : std::nullopt;
}

bool makeConvolution(const ir::Trace& calls, uint32_t instruction, runtime::NativeDevice& device,
                     runtime::NativeCall& call) {
  using F = passes::FoldedOperands;
  const ir::Instruction& ins = calls.code[instruction];
  const auto operands = calls.operandsOf(ins);
  const auto slot = [&](size_t k) { return operands[k].isValue() ? operands[k].id : ir::kNone; };
  const auto numbers = [&](size_t k) {
    std::vector<int64_t> out;
    for (const ir::Operand& o : calls.listOf(operands[k])) {
      out.push_back(o.i);
    }
    return out;
  };
  torchapi::ConvolutionForm form;
  form.input = slot(F::kInput);
  form.weight = slot(F::kWeight);
  form.bias = slot(F::kBias);
  form.scale = slot(F::kScale);
  form.shift = slot(F::kShift);
  form.mean = slot(F::kMean);
  form.variance = slot(F::kVariance);
  form.added = slot(F::kAdded);
  form.result = ins.firstResult;
  form.stride = numbers(F::kStride);
  form.padding = numbers(F::kPadding);
  form.dilation = numbers(F::kDilation);
  form.groups = operands[F::kGroups].i;
  form.epsilon = operands[F::kEpsilon].f;
  form.activation = calls.strings[operands[F::kActivation].id];
  form.slope = operands[F::kSlope].f;
  call.convolution = device.makeConvolution(std::move(form));
  return call.convolution != nullptr;
}

}  // namespace kintsugi::driver
