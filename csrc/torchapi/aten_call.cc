#include "torchapi/aten_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "ops/operator.h"
#include "support/check.h"
#include "torchapi/boxed_args.h"
#include "torchapi/op_schema.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

// Collects warnings until the GIL can be taken. torch has such a handler too, but it can't be asked whether
// it has any.
struct CollectingWarningHandler final : c10::WarningHandler {
  std::vector<c10::Warning> kept;
  void process(const c10::Warning& warning) override { kept.push_back(warning); }
};

}  // namespace

struct CallState::Impl {
  std::vector<c10::IValue> stack;
  std::exception_ptr error;
  CollectingWarningHandler warnings;
  c10::WarningHandler* outerHandler = nullptr;
};

CallState::CallState() : impl_(std::make_unique<Impl>()) { impl_->stack.reserve(32); }
CallState::~CallState() = default;

void CallState::openWarnings() {
  impl_->outerHandler = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::set_warning_handler(&impl_->warnings);
}

void CallState::closeWarnings() { c10::WarningUtils::set_warning_handler(impl_->outerHandler); }

bool CallState::hasWarnings() const { return !impl_->warnings.kept.empty(); }

void CallState::deliverError() {
  const std::exception_ptr error = std::exchange(impl_->error, nullptr);
  const std::vector<c10::Warning> kept = std::exchange(impl_->warnings.kept, {});
  try {
    torch::PyWarningHandler handler;
    for (const c10::Warning& warning : kept) {
      c10::warn(warning);
    }
    try {
      std::rethrow_exception(error);
    } catch (...) {
      handler.set_in_exception();
      throw;
    }
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
}

bool CallState::isErrorOfPython() const {
  if (!impl_->error) return false;
  try {
    std::rethrow_exception(impl_->error);
  } catch (const python_error&) {
    return true;
  } catch (const py::error_already_set&) {
    return true;
  } catch (...) {
    return false;
  }
}

void CallState::dropError() { impl_->error = nullptr; }

bool CallState::deliverWarnings() {
  const std::vector<c10::Warning> kept = std::exchange(impl_->warnings.kept, {});
  HANDLE_TH_ERRORS
  for (const c10::Warning& warning : kept) {
    c10::warn(warning);
  }
  return true;
  END_HANDLE_TH_ERRORS_RET(false)
}

struct AtenCall::Impl {
  struct Result {
    bool isList = false;
    uint32_t count = 1;  // the number of results; more than one for a list
    uint32_t first = 0;  // index of the first result in `slots`
  };
  struct Slot {
    ir::ValueId value = ir::kNone;  // kNone: the result is not used
    ValueKind kind = ValueKind::kEmpty;
  };
  const OpSchema* schema = nullptr;
  BoxedArgs args;
  std::vector<Result> results;
  std::vector<Slot> slots;
  bool onlyTensor = false;  // one tensor result, by far the most frequent case
  bool isFactory = false;   // takes no tensors: torch's bindings call it below autograd, so its writes to the
                            // new memory are not counted

  bool fits(const c10::IValue& value, ValueKind kind) const;
  bool resultsFit(const std::vector<c10::IValue>& stack) const;
  void store(Value* values, std::vector<c10::IValue>& stack) const;
};

AtenCall::AtenCall(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AtenCall::~AtenCall() = default;

std::unique_ptr<AtenCall> AtenCall::make(const ir::Trace& trace, uint32_t instruction,
                                         const ir::Liveness& liveness, std::string& reason) {
  const ir::Instruction& ins = trace.code[instruction];
  auto impl = std::make_unique<Impl>();
  const std::string& name = trace.opNames[ins.opName];
  impl->schema = findOpSchema(name);
  if (impl->schema == nullptr) {
    reason = "there is no operator " + name;
    return nullptr;
  }
  if (!impl->args.lower(trace, ins, *impl->schema, reason)) {
    return nullptr;
  }
  const auto isTensor = [](const OpSchema::Arg& arg) {
    return arg.cls == ArgClass::kTensor || arg.cls == ArgClass::kTensorList ||
           arg.cls == ArgClass::kOptionalTensorList;
  };
  impl->isFactory = ops::isTorchs(name) && std::ranges::none_of(impl->schema->args, isTensor) &&
                    std::ranges::all_of(impl->schema->results, isTensor);
  uint32_t used = 0;
  const auto& results = impl->schema->results;
  for (size_t k = 0; k < results.size(); ++k) {
    Impl::Result result;
    result.first = used;
    result.isList = results[k].cls == ArgClass::kTensorList;
    // A list takes the results that the others leave. No operator returns two lists of unknown length.
    result.count = result.isList ? ins.resultCount - used - static_cast<uint32_t>(results.size() - k - 1) : 1;
    used += result.count;
    impl->results.push_back(result);
  }
  if (used != ins.resultCount) {
    reason = name + " has another number of results";
    return nullptr;
  }
  for (uint32_t k = 0; k < used; ++k) {
    const ir::ValueId value = ins.firstResult + k;
    KINTSUGI_CHECK(value < trace.values.size() && value < liveness.lastUse.size(), name, " makes %", value,
                   " of ", trace.values.size());
    const bool dead = liveness.lastUse[value] == instruction;
    impl->slots.push_back({dead ? ir::kNone : value, kindOfType(trace.values[value].kind)});
  }
  impl->onlyTensor = used == 1 && !impl->results[0].isList && impl->slots[0].kind == ValueKind::kTensor;
  return std::unique_ptr<AtenCall>(new AtenCall(std::move(impl)));
}

bool AtenCall::Impl::fits(const c10::IValue& value, ValueKind kind) const {
  switch (kind) {
    case ValueKind::kTensor:
      return value.isTensor() && value.toTensor().defined();
    case ValueKind::kNone:
      return value.isNone() || (value.isTensor() && !value.toTensor().defined());
    case ValueKind::kInt:
      return value.isInt();
    case ValueKind::kFloat:
      return value.isDouble();
    case ValueKind::kBool:
      return value.isBool();
    case ValueKind::kObject:
    case ValueKind::kEmpty:
      return false;
  }
  return false;
}

bool AtenCall::Impl::resultsFit(const std::vector<c10::IValue>& stack) const {
  if (stack.size() != results.size()) {
    return false;
  }
  for (size_t k = 0; k < results.size(); ++k) {
    const Result& result = results[k];
    if (!result.isList) {
      if (!fits(stack[k], slots[result.first].kind)) {
        return false;
      }
      continue;
    }
    const auto list = stack[k].toTensorList();
    if (list.size() != result.count) {
      return false;
    }
    for (uint32_t i = 0; i < result.count; ++i) {
      const bool defined = static_cast<at::Tensor>(list[i]).defined();
      if (defined != (slots[result.first + i].kind == ValueKind::kTensor)) {
        return false;
      }
    }
  }
  return true;
}

namespace {

void storeValue(Value& value, ValueKind kind, c10::IValue&& from) {
  clear(value);
  switch (kind) {
    case ValueKind::kTensor:
      value.tensor = givenTensor(std::move(from).toTensor());
      break;
    case ValueKind::kInt:
      value.i = from.toInt();
      break;
    case ValueKind::kFloat:
      value.f = from.toDouble();
      break;
    case ValueKind::kBool:
      value.i = from.toBool() ? 1 : 0;
      break;
    default:
      break;
  }
  value.kind = kind;
}

}  // namespace

void AtenCall::Impl::store(Value* values, std::vector<c10::IValue>& stack) const {
  for (size_t k = 0; k < results.size(); ++k) {
    const Result& result = results[k];
    if (!result.isList) {
      const Slot slot = slots[result.first];
      if (slot.value != ir::kNone) {
        storeValue(values[slot.value], slot.kind, std::move(stack[k]));
      }
      continue;
    }
    const auto list = std::move(stack[k]).toTensorList();
    for (uint32_t i = 0; i < result.count; ++i) {
      const Slot slot = slots[result.first + i];
      if (slot.value != ir::kNone) {
        storeValue(values[slot.value], slot.kind, c10::IValue(static_cast<at::Tensor>(list[i])));
      }
    }
  }
}

AtenCall::Status AtenCall::run(Value* values, CallState& state) const {
  std::vector<c10::IValue>& stack = state.impl_->stack;
  try {
    impl_->args.push(values, stack);
    std::optional<at::AutoDispatchBelowADInplaceOrView> below;
    if (impl_->isFactory) below.emplace();
    impl_->schema->op.callBoxed(&stack);
  } catch (const InternalError&) {  // an error of ours, not of the operator
    stack.clear();
    throw;
  } catch (...) {
    state.impl_->error = std::current_exception();
    stack.clear();
    return Status::kRaised;
  }
  if (impl_->onlyTensor && stack.size() == 1 && stack[0].isTensor() && stack[0].toTensor().defined())
      [[likely]] {
    const ir::ValueId id = impl_->slots[0].value;
    if (id != ir::kNone) {
      clear(values[id]);
      values[id].tensor = givenTensor(std::move(stack[0]).toTensor());
      values[id].kind = ValueKind::kTensor;
    }
    stack.clear();
    return Status::kOk;
  }
  if (!impl_->resultsFit(stack)) {
    stack.clear();
    return Status::kChanged;
  }
  impl_->store(values, stack);
  stack.clear();
  return Status::kOk;
}

}  // namespace kintsugi::torchapi
