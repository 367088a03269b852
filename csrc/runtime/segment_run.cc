#include "runtime/segment_run.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "pyapi/ref.h"
#include "runtime/work_clock.h"
#include "torchapi/op_effects.h"
#include "torchapi/tensor_backup.h"

namespace kintsugi::runtime {

using torchapi::Value;
using torchapi::ValueKind;

RerunState::RerunState(const SegmentCode& segment, std::span<const Value> inputs) : segment_(segment) {
  if (!segment.runner->raises() && !segment.rollsBack) {
    return;
  }
  if (segment.changesGradMode) {
    gradMode_ = torchapi::gradMode();
  }
  if (segment.random) {
    generator_.emplace();
  }
  for (size_t i = 0; segment.writes && i < inputs.size(); ++i) {
    uint64_t version = 0;
    known_ = known_ &&
             (inputs[i].kind != ValueKind::kTensor || torchapi::tensorVersion(inputs[i].tensor, version));
    versions_.push_back(version);
  }
  for (const SegmentCode::Restored& restored : segment.restored) {
    const Value& input = inputs[restored.input];
    if (input.kind == ValueKind::kTensor) {
      backups_.emplace_back(input.tensor, restored.copied || isShared(inputs, restored.input));
    }
  }
}

bool RerunState::restore(std::span<const Value> inputs) const {
  if (!isKnown() || !std::ranges::all_of(backups_, [](const auto& backup) { return backup.restore(); })) {
    return false;
  }
  for (size_t i = 0; i < versions_.size(); ++i) {
    uint64_t version = 0;
    if (inputs[i].kind == ValueKind::kTensor &&
        (!torchapi::tensorVersion(inputs[i].tensor, version) || version != versions_[i])) {
      return false;
    }
  }
  if (generator_) {
    generator_->restore();
  }
  if (segment_.changesGradMode) {
    torchapi::setGradMode(gradMode_);
  }
  return true;
}

bool RerunState::mayWriteTo(std::span<const Value> inputs, const Value& tensor) const {
  return std::ranges::any_of(segment_.restored, [&](const SegmentCode::Restored& restored) {
    const Value& input = inputs[restored.input];
    return input.kind == ValueKind::kTensor && tensor.kind == ValueKind::kTensor &&
           torchapi::mayOverlap(input.tensor, tensor.tensor);
  });
}

// What is not copied is written again, and another input that shares its memory would be read too late.
bool RerunState::isShared(std::span<const Value> inputs, size_t written) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i != written && inputs[i].kind == ValueKind::kTensor &&
        torchapi::mayOverlap(inputs[i].tensor, inputs[written].tensor)) {
      return true;
    }
  }
  return false;
}

namespace {

SegmentOutcome failed(const RerunState& before, std::span<const Value> inputs, SegmentRunner::Status status) {
  if (status == SegmentRunner::Status::kDeclined) {
    return SegmentOutcome::kOneByOne;
  }
  if (status == SegmentRunner::Status::kMeasured) {
    return SegmentOutcome::kMeasured;
  }
  if (status == SegmentRunner::Status::kFailed) {
    return SegmentOutcome::kFailed;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  // Interrupts and the like are passed on; running the instructions would not raise them again.
  const bool ordinary = type != nullptr && PyErr_GivenExceptionMatches(type, PyExc_Exception) != 0;
  if (ordinary && before.restore(inputs)) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return SegmentOutcome::kOneByOne;
  }
  PyErr_Restore(type, value, traceback);
  return SegmentOutcome::kRaised;
}

// A graph that may be rolled back behind its run has to be one that can be.
bool canRollBack(const SegmentCode& segment, const RerunState& before, std::span<const Value> inputs,
                 const Value* values) {
  return before.isKnown() && std::ranges::none_of(segment.asked, [&](ir::ValueId value) {
           return before.mayWriteTo(inputs, values[value]);
         });
}

}  // namespace

SegmentOutcome runSegment(const SegmentCode& segment, Value* values, SegmentSteps* steps,
                          std::optional<RerunState>& before) {
  constexpr size_t kInline = 32;
  const size_t count = segment.inputs.size() + segment.outputs.size();
  Value onStack[kInline];
  std::vector<Value> onHeap(count > kInline ? count : 0);
  const std::span<Value> all(count > kInline ? onHeap.data() : onStack, count);
  const std::span<Value> inputs = all.first(segment.inputs.size());
  const std::span<Value> outputs = all.subspan(segment.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = values[segment.inputs[i]];  // borrowed
  }
  before.emplace(segment, inputs);
  if (segment.rollsBack && !canRollBack(segment, *before, inputs, values)) return SegmentOutcome::kOneByOne;
  const SegmentStepsScope scope(segment.runner.get(), steps);
  const SegmentRunner::Status status = timed([&] { return segment.runner->run(inputs, outputs); });
  if (status != SegmentRunner::Status::kOk) {
    return failed(*before, inputs, status);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    torchapi::clear(values[segment.outputs[i]]);
    values[segment.outputs[i]] = outputs[i];
  }
  return SegmentOutcome::kDone;
}

}  // namespace kintsugi::runtime
