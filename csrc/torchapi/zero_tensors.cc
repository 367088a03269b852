// OpDrain: zeros without memory, as forward-mode differentiation uses them.
//
// Such a tensor (at::Tensor::_is_zerotensor) is written into the trace as an expanded zero, which means the
// same to operators. If an operator's result needs no computing, the trace gets the result directly: another
// zero, or for a sum a copy of the other operand.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>

#include "ops/operator.h"
#include "torchapi/op_drain.h"
#include "torchapi/sym_node.h"
#include "torchapi/tensor_stamp.h"

namespace kintsugi::torchapi {

using ops::Operator;

bool OpDrain::isZero(const at::Tensor& tensor) {
  return tensor.defined() && tensor._is_zerotensor() && tensor.layout() == c10::kStrided &&
         tensor.device().is_cpu() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

bool OpDrain::makesZero(const OpLog::Entry& entry) const {
  return entry.end == entry.firstOutput + 1 && log_.values[entry.firstOutput].isTensor() &&
         isZero(log_.values[entry.firstOutput].toTensor());
}

void OpDrain::appendZero(const at::Tensor& tensor) {
  at::Tensor zero, expanded;
  {
    // No transform may take these tensors for its own.
    const c10::impl::ExcludeDispatchKeyGuard transforms(c10::DispatchKeySet(
        {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode,
         c10::DispatchKey::FuncTorchVmapMode}));
    const at::AutoDispatchBelowADInplaceOrView below;
    zero = at::zeros({}, tensor.options());
    expanded = zero.expand(tensor.sizes());
  }
  const ir::Operand value[] = {
      trace_.listOperand({}),
      ir::Operand::integer(0),
      ir::Operand::make(ir::OperandKind::kDtype, static_cast<int64_t>(tensor.scalar_type())),
      ir::Operand::none(),
      ir::Operand::make(ir::OperandKind::kDevice, trace_.internString("cpu")),
      ir::Operand::none()};
  const ir::ValueId scalar = appendFactory(Operator::kFull, value, zero);
  std::vector<ir::Operand> sizes;
  for (const int64_t size : tensor.sizes()) {
    sizes.push_back(ir::Operand::integer(size));
  }
  const ir::Operand shape[] = {ir::Operand::value(scalar), trace_.listOperand(sizes),
                               ir::Operand::boolean(false)};
  const ir::ValueId made = appendFactory(Operator::kExpand, shape, expanded);
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  table_.bind(impl, metaStamp(*impl), made, MetaLevel::kFull);
}

// x + 0 and 0 - x, where the 0 is such a zero, are x and -x, bit for bit. Returns x; null if it is another
// operator.
const at::Tensor* OpDrain::addedToZero(const OpLog::Entry& entry, const OpSchema& schema) const {
  const Operator op = ops::find(schema.name);
  if (op != Operator::kAddTensor && op != Operator::kSubTensor) {
    return nullptr;
  }
  const at::Tensor& self = log_.values[entry.firstInput].toTensor();
  const at::Tensor& other = log_.values[entry.firstInput + 1].toTensor();
  return isZero(self) ? &other : isZero(other) ? &self : nullptr;
}

bool OpDrain::checkSum(const OpLog::Entry& entry, const OpSchema& schema) {
  const at::Tensor* kept = addedToZero(entry, schema);
  if (kept == nullptr) {
    return true;
  }
  const at::TensorImpl* impl = kept->unsafeGetTensorImpl();
  const bool known = table_.find(impl) != nullptr || isProduced(impl);
  const bool converts = kept->scalar_type() != log_.values[entry.firstOutput].toTensor().scalar_type();
  return (known && !converts && !traceValueOf(log_.values[entry.firstInput + 2])) ||
         refuse(DrainResult::kUnsupported);
}

bool OpDrain::appendSum(const OpLog::Entry& entry, const OpSchema& schema) {
  const at::Tensor* kept = addedToZero(entry, schema);
  if (kept == nullptr) {
    return false;
  }
  const at::Tensor& sum = log_.values[entry.firstOutput].toTensor();
  std::vector<ir::Operand> sizes;
  for (const int64_t size : sum.sizes()) {
    sizes.push_back(ir::Operand::integer(size));
  }
  ir::Operand value = tensorOperand(*kept);
  if (kept->sizes() != sum.sizes()) {
    const ir::Operand shape[] = {value, trace_.listOperand(sizes), ir::Operand::boolean(false)};
    value = ir::Operand::value(appendFactory(Operator::kExpand, shape, kept->expand(sum.sizes())));
  }
  const ir::Operand copied[] = {value, ir::Operand::none()};
  ir::ValueId made = appendFactory(Operator::kClone, copied, sum);
  const c10::Scalar factor = log_.values[entry.firstInput + 2].toScalar();
  const bool zeroFirst = isZero(log_.values[entry.firstInput].toTensor());
  if (zeroFirst && (ops::find(schema.name) == Operator::kSubTensor || !factor.equal(1))) {
    const c10::Scalar scale = ops::find(schema.name) == Operator::kSubTensor ? -factor : factor;
    const ir::Operand scaled[] = {ir::Operand::value(made), scalarOperand(c10::IValue(scale))};
    made = appendFactory(Operator::kMulTensor, scaled, sum);
  }
  const at::TensorImpl* impl = sum.unsafeGetTensorImpl();
  table_.bind(impl, metaStamp(*impl), made, MetaLevel::kFull);
  return true;
}

}  // namespace kintsugi::torchapi
