#include "torchapi/op_effects.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "ops/operator.h"
#include "torchapi/op_schema.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

bool replacesTensor(const c10::OperatorHandle& op, const std::string& name) {
  return op.hasTag(at::Tag::inplace_view) || ops::has(name, ops::Trait::kReplacesTensor);
}

// True if results are always new tensors. A composite operator may return its argument, as `contiguous` does.
// For other operators the schema says so.
bool makesNewTensors(const c10::OperatorHandle& op, const std::string& name) {
  const auto& results = op.schema().returns();
  return ops::isTorchs(name) && !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         std::all_of(results.begin(), results.end(),
                     [](const c10::Argument& result) { return result.alias_info() == nullptr; });
}

bool writesToFirstAlone(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto isWritten = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  };
  return !arguments.empty() && isWritten(arguments.front()) &&
         std::none_of(arguments.begin() + 1, arguments.end(), isWritten);
}

bool makesViews(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return !results.empty() && std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr;
  });
}

// May the length of the list that it returns follow from sizes? Operators of torch's that take a list give
// one of the same length, or of one more: tensors, sizes of parts, places between parts, dimensions
// (tests/python/test_operator_traits.py).
bool countsBySizes(const OpSchema& op) {
  if (op.results.size() != 1 || op.results[0].cls != ArgClass::kTensorList) return false;
  const auto& arguments = op.op.schema().arguments();
  return !ops::isTorchs(op.name) || std::ranges::none_of(arguments, [](const c10::Argument& argument) {
    return argument.real_type()->kind() == c10::TypeKind::ListType;
  });
}

}  // namespace

OpEffects opEffects(std::string_view name) {
  OpEffects effects;
  const OpSchema* found = findOpSchema(name);
  if (found == nullptr) {
    return effects;
  }
  const OpSchema& op = *found;
  effects.known = true;
  const bool ours = ops::isTorchs(op.name);
  effects.sizesFromMask = op.dynamicIfMask;
  // Custom operators declare by tags that their sizes depend on data.
  effects.dynamicSizes = (ours && op.dynamicShape) ||
                         (!op.dynamicIfMask && op.op.hasTag(at::Tag::dynamic_output_shape)) ||
                         op.op.hasTag(at::Tag::data_dependent_output);
  effects.likelySizes = op.likelyShape;
  effects.random = op.op.hasTag(at::Tag::nondeterministic_seeded);
  effects.writes = op.op.schema().is_mutable() || (op.mutates && !effects.random);
  effects.writesFirst = writesToFirstAlone(op.op.schema());
  effects.collective = ops::isCollective(op.name);
  effects.writesUnseen =
      effects.collective || (op.mutates && !op.op.schema().is_mutable() && !effects.random);
  effects.mayRunPython = !ours;
  effects.changesMetadata = replacesTensor(op.op, op.name);
  effects.views = ours && !op.op.schema().is_mutable() && makesViews(op.op);
  effects.freshResults = makesNewTensors(op.op, op.name);
  for (const OpSchema::Arg& result : op.results) {
    effects.mixesLists = effects.mixesLists || (result.cls == ArgClass::kTensorList && op.results.size() > 1);
  }
  effects.countOfSizes = countsBySizes(op);
  return effects;
}

namespace {

bool makesResults(const ir::Trace& trace, const ir::Instruction& ins, bool mayDraw) {
  if (ins.op != ir::Op::kAten) return (ir::opInfo(ins.op).flags & ir::kEffect) == 0;
  const OpEffects effects = opEffects(trace.opNames[ins.opName]);
  return effects.known && !effects.writes && !effects.writesUnseen && !effects.collective &&
         !effects.changesMetadata && (mayDraw || !effects.random);
}

}  // namespace

bool changesNothing(const ir::Trace& trace, const ir::Instruction& ins) {
  return makesResults(trace, ins, false);
}
bool makesOrDraws(const ir::Trace& trace, const ir::Instruction& ins) {
  return makesResults(trace, ins, true);
}

bool gradMode() { return c10::GradMode::is_enabled(); }
void setGradMode(bool enabled) { c10::GradMode::set_enabled(enabled); }

bool tensorVersion(const void* impl, uint64_t& version) {
  const auto& counter = static_cast<const at::TensorImpl*>(impl)->version_counter();
  if (!counter.enabled()) {
    return false;
  }
  version = counter.current_version();
  return true;
}

struct GeneratorState::Impl {
  at::Generator generator;
  at::Tensor state;
};

GeneratorState::GeneratorState() : impl_(std::make_unique<Impl>()) {
  impl_->generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(impl_->generator.mutex());
  impl_->state = impl_->generator.get_state();
}
GeneratorState::~GeneratorState() = default;

void GeneratorState::restore() const {
  std::lock_guard<std::mutex> lock(impl_->generator.mutex());
  impl_->generator.set_state(impl_->state);
}

}  // namespace kintsugi::torchapi
