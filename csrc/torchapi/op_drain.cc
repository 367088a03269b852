#include "torchapi/op_drain.h"

#include <c10/core/impl/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "ops/operator.h"
#include "support/check.h"
#include "torchapi/given_back.h"
#include "torchapi/global_state.h"
#include "torchapi/sym_node.h"
#include "torchapi/tensor_stamp.h"

namespace kintsugi::torchapi {

using ops::Operator;

namespace {

bool isMask(const at::Tensor& tensor) {
  return tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte;
}

bool isInt(const c10::IValue& value) {
  return value.isInt() || (value.isSymInt() && (traceValueOf(value) || hiddenConstantOf(value)));
}

bool isFloat(const c10::IValue& value) {
  return value.isDouble() || (value.isSymFloat() && traceValueOf(value));
}

bool isNumber(const c10::IValue& value) {
  return isInt(value) || isFloat(value) || value.isInt() || value.isDouble() || value.isBool() ||
         value.isComplexDouble();
}

// True for the tensor that a binding makes of a Python number.
bool isWrappedNumber(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->is_wrapped_number() || impl->dim() != 0 || !impl->device().is_cpu()) {
    return false;
  }
  const c10::ScalarType type = tensor.scalar_type();
  return type == c10::kLong || type == c10::kDouble || type == c10::kBool || type == c10::kComplexDouble;
}

// True if a Scalar can hold all values of the type exactly.
bool isNumberType(c10::ScalarType type) {
  const bool whole = c10::isIntegralType(type, true) && type != c10::kUInt64;
  return whole || type == c10::kDouble || type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
}

bool hasPyObject(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr;
}

ir::TensorDesc infoOfResult(const at::Tensor& tensor) {
  ir::TensorDesc info = describe(*tensor.unsafeGetTensorImpl());
  info.pyType = THPVariableClass;
  return info;
}

}  // namespace

DrainResult OpDrain::run() {
  log_.lockOutputs();
  std::vector<const OpSchema*> schemas;
  schemas.reserve(log_.entries.size());
  for (size_t k = 0; k < log_.entries.size(); ++k) {
    const OpLog::Entry& entry = log_.entries[k];
    const OpSchema& schema = opSchemaOf(entry.op);
    // With a mode, each run has to ask for the metadata.
    const bool hidden = isHidden(k) || (schema.ofMetadata && takesProduced(entry) && !hasModes());
    schemas.push_back(hidden ? nullptr : &schema);
    if (!hidden && !check(entry, schema)) {
      result_.detail = schema.name.c_str();
      return std::move(result_);
    }
  }
  for (size_t k = 0; k < schemas.size(); ++k) {
    if (schemas[k] != nullptr) {
      append(log_.entries[k], *schemas[k]);
    }
  }
  return std::move(result_);
}

bool OpDrain::refuse(DrainResult::Status status) {
  result_.status = status;
  return false;
}

bool OpDrain::isProduced(const at::TensorImpl* impl) const {
  return producedMany_.empty() ? std::find(produced_.begin(), produced_.end(), impl) != produced_.end()
                               : producedMany_.contains(impl);
}

void OpDrain::noteProduced(const at::TensorImpl* impl) {
  // Fewer are found faster by looking at each than in a hash set.
  constexpr size_t kFew = 16;
  if (producedMany_.empty() && produced_.size() < kFew) {
    produced_.push_back(impl);
    return;
  }
  if (producedMany_.empty()) {
    producedMany_.insert(produced_.begin(), produced_.end());
  }
  producedMany_.insert(impl);
}

size_t OpDrain::mentionsOf(const at::TensorImpl* impl) const {
  size_t count = 0;
  for (const c10::IValue& value : log_.values) {
    forEachTensor(value, [&](const at::Tensor& t) { count += t.unsafeGetTensorImpl() == impl ? 1 : 0; });
  }
  return count;
}

bool OpDrain::isReadLater(const at::TensorImpl* impl, size_t index) const {
  bool read = false;
  for (size_t e = index + 1; e < log_.entries.size(); ++e) {
    for (size_t k = log_.entries[e].firstInput; k < log_.entries[e].firstOutput; ++k) {
      forEachTensor(log_.values[k],
                    [&](const at::Tensor& t) { read = read || t.unsafeGetTensorImpl() == impl; });
    }
  }
  return read;
}

// True for factory functions, such as `zeros` and `zeros_like`.
bool OpDrain::isFactory(const OpLog::Entry& entry) const {
  bool reads = false;
  for (size_t k = entry.firstInput; k < entry.firstOutput; ++k) {
    forEachTensor(log_.values[k], [&reads](const at::Tensor&) { reads = true; });
  }
  return !reads || entry.op.operator_name().name.ends_with("_like");
}

bool OpDrain::isHidden(size_t index) const {
  const OpLog::Entry& entry = log_.entries[index];
  if (!entry.belowAutograd) {
    return false;
  }
  if (isFactory(entry)) {
    // Bindings of factory functions call these below autograd. An `empty` that no later entry of the log uses
    // is a call by the program.
    const bool makesEmpty = opSchemaOf(entry.op).makesEmpty;
    const c10::IValue& output = log_.values[entry.firstOutput];
    return makesEmpty && (!output.isTensor() || isReadLater(output.toTensor().unsafeGetTensorImpl(), index));
  }
  bool known = false;
  for (size_t k = entry.firstInput; k < entry.firstOutput; ++k) {
    forEachTensor(log_.values[k], [&](const at::Tensor& t) {
      const at::TensorImpl* impl = t.unsafeGetTensorImpl();
      known = known || table_.find(impl) != nullptr || isProduced(impl);
    });
  }
  return !known;
}

bool OpDrain::check(const OpLog::Entry& entry, const OpSchema& schema) {
  if (entry.belowAutograd && (!isFactory(entry) || !log_.values[entry.firstOutput].isTensor())) {
    // The call was made below autograd; in a replay it would be differentiated.
    return refuse(DrainResult::kUnsupported);
  }
  for (size_t k = 0; k < schema.args.size(); ++k) {
    if (!checkInput(log_.values[entry.firstInput + k], schema.args[k])) {
      return false;
    }
  }
  KINTSUGI_CHECK(entry.end - entry.firstOutput == schema.results.size(), schema.name);
  if (std::count_if(schema.results.begin(), schema.results.end(),
                    [](OpSchema::Arg r) { return r.cls == ArgClass::kTensorList; }) > 1) {
    // The two lists are flattened into results, so their lengths could not be told apart.
    return refuse(DrainResult::kUnsupported);
  }
  bool zeros = false;
  for (size_t k = 0; k < schema.results.size(); ++k) {
    const c10::IValue& made = log_.values[entry.firstOutput + k];
    if (!checkOutput(made, schema.results[k])) {
      return false;
    }
    forEachTensor(made, [&](const at::Tensor& t) { zeros = zeros || isZero(t); });
  }
  if (zeros && (!makesZero(entry) || schema.mutates)) {
    return refuse(DrainResult::kUnsupported);
  }
  return zeros || checkSum(entry, schema);
}

bool OpDrain::checkInput(const c10::IValue& value, OpSchema::Arg arg) {
  if (value.isNone()) {
    return true;
  }
  switch (arg.cls) {
    case ArgClass::kTensor:
      return checkTensor(value.toTensor());
    case ArgClass::kTensorList:
    case ArgClass::kOptionalTensorList: {
      bool ok = true;
      forEachTensor(value, [&](const at::Tensor& t) { ok = ok && checkTensor(t); });
      return ok;
    }
    case ArgClass::kInt:
      return isInt(value) || refuse(DrainResult::kUnsupported);
    case ArgClass::kDtype:
    case ArgClass::kLayout:
    case ArgClass::kMemoryFormat:
      return value.isInt() || refuse(DrainResult::kUnsupported);
    case ArgClass::kFloat:
      return isFloat(value) || refuse(DrainResult::kUnsupported);
    case ArgClass::kBool:
      return value.isBool() || refuse(DrainResult::kUnsupported);
    case ArgClass::kScalar:
      return isNumber(value) || refuse(DrainResult::kUnsupported);
    case ArgClass::kString:
      return value.isString() || refuse(DrainResult::kUnsupported);
    case ArgClass::kDevice:
      return value.isDevice() || refuse(DrainResult::kUnsupported);
    case ArgClass::kIntList:
      return value.isIntList() || value.isSymIntList() || (value.isList() && value.toListRef().empty()) ||
             refuse(DrainResult::kUnsupported);
    case ArgClass::kFloatList:
      return value.isDoubleList() || refuse(DrainResult::kUnsupported);
    case ArgClass::kBoolList:
      return value.isBoolList() || refuse(DrainResult::kUnsupported);
    case ArgClass::kScalarList: {
      bool ok = value.isList();
      for (const c10::IValue& element : ok ? value.toList().vec() : std::vector<c10::IValue>()) {
        ok = ok && isNumber(element);
      }
      return ok || refuse(DrainResult::kUnsupported);
    }
    case ArgClass::kStringList:
    case ArgClass::kGenerator:
    case ArgClass::kUnsupported:
      return refuse(DrainResult::kUnsupported);
  }
  return refuse(DrainResult::kUnsupported);
}

bool OpDrain::isTemporaryNumber(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->dim() == 0 && impl->device().is_cpu() && !hasPyObject(tensor) &&
         isNumberType(tensor.scalar_type()) && !tensor.requires_grad() &&
         tensor.use_count() <= mentionsOf(impl);
}

bool OpDrain::isTemporaryList(const at::Tensor& tensor) {
  // Lists of sizes, indices and permutations are shorter. A longer one is data, which is not copied into a
  // trace.
  constexpr int64_t kMost = 16;
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->dim() == 1 && impl->device().is_cpu() && !hasPyObject(tensor) &&
         tensor.scalar_type() == c10::kLong && tensor.is_contiguous() && impl->numel() > 0 &&
         impl->numel() <= kMost && tensor.use_count() <= mentionsOf(impl);
}

bool OpDrain::checkTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return true;
  }
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!isPlain(*impl) && !isZero(tensor)) {
    return refuse(DrainResult::kUnsupported);
  }
  if (table_.find(impl) != nullptr || isProduced(impl) || isWrappedNumber(tensor) ||
      isTemporaryNumber(tensor) || isTemporaryList(tensor)) {
    return true;
  }
  return refuse(DrainResult::kUnknownTensor);
}

bool OpDrain::checkOutput(const c10::IValue& value, OpSchema::Arg result) {
  switch (result.cls) {
    case ArgClass::kTensor:
    case ArgClass::kTensorList: {
      bool ok = true;
      forEachTensor(value, [&](const at::Tensor& t) {
        if (t.defined()) {
          ok = ok && (isPlain(*t.unsafeGetTensorImpl()) || isZero(t));
          noteProduced(t.unsafeGetTensorImpl());
        }
      });
      return ok || refuse(DrainResult::kUnsupported);
    }
    case ArgClass::kInt:
    case ArgClass::kFloat:
    case ArgClass::kBool:
    case ArgClass::kScalar:
      return value.isInt() || value.isDouble() || value.isBool() || value.isNone() ||
             refuse(DrainResult::kUnsupported);
    default:
      return refuse(DrainResult::kUnsupported);
  }
}

MetaLevel OpDrain::levelOf(const at::Tensor& tensor) const {
  const TensorTable::Known* known = table_.find(tensor.unsafeGetTensorImpl());
  return known == nullptr ? MetaLevel::kFull : table_.level(known->value);
}

// How much of the results' metadata follows from guards. It is the least level of the inputs, or less if the
// operator decides by data or by sizes.
MetaLevel OpDrain::resultLevel(const OpLog::Entry& entry, const OpSchema& schema) const {
  MetaLevel level = schema.dynamicShape ? MetaLevel::kRank : MetaLevel::kFull;
  bool number = false;  // a plain argument that varies
  for (size_t k = 0; k < schema.args.size(); ++k) {
    const c10::IValue& value = log_.values[entry.firstInput + k];
    if (hasTraceNumber(value)) {
      level = std::min(level, MetaLevel::kRank);
      number = number || !value.isSymIntList();
    }
    if (schema.dynamicIfMask && value.isInt() && value.toInt() < 0) {
      level = std::min(level, MetaLevel::kRank);
    }
    forEachTensor(value, [&](const at::Tensor& t) {
      if (t.defined()) {
        level = std::min(level, levelOf(t));
      }
      if (schema.dynamicIfMask && k > 0 && t.defined() && isMask(t)) {
        level = std::min(level, MetaLevel::kRank);
      }
    });
  }
  if (level == MetaLevel::kRank &&
      (schema.rankOfSizes || (number && schema.rankOfNumbers) || mixesRanks(entry))) {
    return MetaLevel::kUnknown;
  }
  return level;
}

// True if what the operator says of its arguments follows from guards. Tensors that the same call has made
// count as known: they are, if the inputs of the call are.
bool OpDrain::takesProduced(const OpLog::Entry& entry) const {
  bool known = true;
  for (size_t k = entry.firstInput; k < entry.firstOutput; ++k) {
    forEachTensor(log_.values[k], [&](const at::Tensor& t) {
      const at::TensorImpl* impl = t.unsafeGetTensorImpl();
      const TensorTable::Known* found = table_.find(impl);
      known = known && (found != nullptr ? table_.level(found->value) == MetaLevel::kFull : isProduced(impl));
    });
  }
  return known;
}

// True if all metadata of the inputs follows from guards.
bool OpDrain::inputsAreKnown(const OpLog::Entry& entry) const {
  bool known = true;
  for (size_t k = entry.firstInput; k < entry.firstOutput; ++k) {
    known = known && !hasTraceNumber(log_.values[k]);
    forEachTensor(log_.values[k], [&](const at::Tensor& t) {
      known = known && (!t.defined() || levelOf(t) == MetaLevel::kFull);
    });
  }
  return known;
}

// True for a list of tensors of different ranks. cat() leaves out those that are empty.
bool OpDrain::mixesRanks(const OpLog::Entry& entry) const {
  bool mixed = false;
  for (size_t k = entry.firstInput; k < entry.firstOutput; ++k) {
    int64_t rank = -1;
    if (!log_.values[k].isTensorList()) {
      continue;
    }
    forEachTensor(log_.values[k], [&](const at::Tensor& t) {
      const int64_t dim = t.defined() ? t.dim() : rank;
      mixed = mixed || (rank >= 0 && dim != rank);
      rank = dim;
    });
  }
  return mixed;
}

ir::Operand OpDrain::scalarOperand(const c10::IValue& value) {
  if (const auto known = traceValueOf(value)) {
    return ir::Operand::value(*known);
  }
  if (const auto hidden = hiddenConstantOf(value)) {
    return ir::Operand::integer(*hidden);
  }
  if (value.isInt()) {
    return ir::Operand::integer(value.toInt());
  }
  if (value.isDouble()) {
    return ir::Operand::number(value.toDouble());
  }
  if (value.isBool()) {
    return ir::Operand::boolean(value.toBool());
  }
  const c10::complex<double> z = value.toComplexDouble();
  trace_.complexes.emplace_back(z.real(), z.imag());
  return ir::Operand::make(ir::OperandKind::kComplex, static_cast<int64_t>(trace_.complexes.size()) - 1);
}

ir::Operand OpDrain::numberOperand(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case c10::kLong:
      return ir::Operand::integer(*static_cast<const int64_t*>(data));
    case c10::kBool:
      return ir::Operand::boolean(*static_cast<const bool*>(data));
    case c10::kComplexDouble:
      return scalarOperand(c10::IValue(*static_cast<const c10::complex<double>*>(data)));
    default:
      return ir::Operand::number(*static_cast<const double*>(data));
  }
}

// Appends `aten.scalar_tensor`, because the dtype may differ from the one that a plain number would get.
ir::ValueId OpDrain::appendNumberTensor(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto it = numbers_.find(impl);
  if (it != numbers_.end()) {
    return it->second;
  }
  static const OpSchema* schema = findOpSchema(ops::nameOf(Operator::kScalarTensor));
  const ir::Operand operands[] = {
      scalarOperand(c10::IValue(tensor.item())),
      ir::Operand::make(ir::OperandKind::kDtype, static_cast<int64_t>(tensor.scalar_type())),
      ir::Operand::none(), ir::Operand::make(ir::OperandKind::kDevice, trace_.internString("cpu")),
      ir::Operand::none()};
  const ir::Type type = tensorType(tensor, MetaLevel::kFull);
  const size_t index = trace_.append(ir::Op::kAten, operands, {&type, 1}, snap_);
  trace_.code[index].opName = table_.opName(trace_, *schema);
  ++result_.count;
  return numbers_[impl] = trace_.code[index].firstResult;
}

ir::ValueId OpDrain::appendFactory(ops::Operator op, std::span<const ir::Operand> operands,
                                   const at::Tensor& like) {
  const ir::Type type = tensorType(like, MetaLevel::kFull);
  const size_t index = trace_.append(ir::Op::kAten, operands, {&type, 1}, snap_);
  trace_.code[index].opName = table_.opName(trace_, *findOpSchema(ops::nameOf(op)));
  ++result_.count;
  return trace_.code[index].firstResult;
}

// For `x[[2, 0]]`: the binding has filled the index tensor without the dispatcher. Expresses it by operators.
ir::ValueId OpDrain::appendListTensor(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto it = numbers_.find(impl);
  if (it != numbers_.end()) {
    return it->second;
  }
  const int64_t count = tensor.numel();
  const std::vector<int64_t> list(tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + count);
  const ir::Operand dtype = ir::Operand::make(ir::OperandKind::kDtype, static_cast<int64_t>(c10::kLong));
  const ir::Operand device = ir::Operand::make(ir::OperandKind::kDevice, trace_.internString("cpu"));
  const ir::Operand none = ir::Operand::none();
  const int64_t step = count > 1 ? list[1] - list[0] : 0;
  bool even = true;
  for (size_t k = 1; k < list.size(); ++k) {
    even = even && list[k] - list[k - 1] == step;
  }
  if (even && step == 0) {
    const ir::Operand size[] = {ir::Operand::integer(count)};
    const ir::Operand operands[] = {
        trace_.listOperand(size), ir::Operand::integer(list[0]), dtype, none, device, none};
    return numbers_[impl] = appendFactory(Operator::kFull, operands, tensor);
  }
  if (even) {
    const ir::Operand operands[] = {ir::Operand::integer(list[0]),
                                    ir::Operand::integer(list[0] + step * count),
                                    ir::Operand::integer(step),
                                    dtype,
                                    none,
                                    device,
                                    none};
    return numbers_[impl] = appendFactory(Operator::kArangeStartStep, operands, tensor);
  }
  std::vector<ir::Operand> elements;
  for (int64_t k = 0; k < count; ++k) {
    const ir::Operand operands[] = {ir::Operand::integer(list[static_cast<size_t>(k)]), dtype, none, device,
                                    none};
    elements.push_back(
        ir::Operand::value(appendFactory(Operator::kScalarTensor, operands, tensor.select(0, k))));
  }
  const ir::Operand operands[] = {trace_.listOperand(elements), ir::Operand::integer(0)};
  return numbers_[impl] = appendFactory(Operator::kStack, operands, tensor);
}

ir::Operand OpDrain::tensorOperand(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return ir::Operand::none();
  }
  if (const TensorTable::Known* known = table_.find(tensor.unsafeGetTensorImpl())) {
    return ir::Operand::value(known->value);
  }
  if (const auto number = traceValueOf(tensor)) {
    return ir::Operand::value(*number);
  }
  if (isWrappedNumber(tensor)) {
    return numberOperand(tensor);
  }
  return ir::Operand::value(tensor.dim() == 1 ? appendListTensor(tensor) : appendNumberTensor(tensor));
}

ir::Operand OpDrain::listOperand(const c10::IValue& value, ArgClass cls) {
  std::vector<ir::Operand> elements;
  for (const c10::IValue& element : value.toList().vec()) {
    if (cls == ArgClass::kTensorList || cls == ArgClass::kOptionalTensorList) {
      elements.push_back(element.isNone() ? ir::Operand::none() : tensorOperand(element.toTensor()));
    } else {
      elements.push_back(scalarOperand(element));
    }
  }
  return trace_.listOperand(elements);
}

ir::Operand OpDrain::operandOf(const c10::IValue& value, OpSchema::Arg arg) {
  if (value.isNone()) {
    return ir::Operand::none();
  }
  switch (arg.cls) {
    case ArgClass::kTensor:
      return tensorOperand(value.toTensor());
    case ArgClass::kInt:
    case ArgClass::kFloat:
    case ArgClass::kBool:
    case ArgClass::kScalar:
      return scalarOperand(value);
    case ArgClass::kDtype:
      return ir::Operand::make(ir::OperandKind::kDtype, value.toInt());
    case ArgClass::kLayout:
      return ir::Operand::make(ir::OperandKind::kLayout, value.toInt());
    case ArgClass::kMemoryFormat:
      return ir::Operand::make(ir::OperandKind::kMemoryFormat, value.toInt());
    case ArgClass::kDevice:
      return ir::Operand::make(ir::OperandKind::kDevice, trace_.internString(value.toDevice().str()));
    case ArgClass::kString:
      return trace_.stringOperand(value.toStringRef());
    case ArgClass::kTensorList:
    case ArgClass::kOptionalTensorList:
    case ArgClass::kIntList:
    case ArgClass::kFloatList:
    case ArgClass::kBoolList:
    case ArgClass::kScalarList:
      return listOperand(value, arg.cls);
    case ArgClass::kStringList:
    case ArgClass::kGenerator:
    case ArgClass::kUnsupported:
      break;
  }
  KINTSUGI_UNREACHABLE("argument class that the check refuses");
}

ir::Type OpDrain::tensorType(const at::Tensor& tensor, MetaLevel level) {
  if (!tensor.defined()) {
    return {ir::TypeKind::kNone, ir::kNone};
  }
  if (level == MetaLevel::kUnknown) {
    return {ir::TypeKind::kTensor, ir::kNone};
  }
  ir::TensorDesc info = infoOfResult(tensor);
  if (level != MetaLevel::kFull) {
    info = atLevel(info, level);
  }
  return {ir::TypeKind::kTensor, table_.internMeta(trace_, info)};
}

void OpDrain::addResult(const c10::IValue& value, MetaLevel level) {
  if (value.isTensor()) {
    types_.push_back(tensorType(value.toTensor(), level));
  } else if (value.isTensorList()) {
    forEachTensor(value, [&](const at::Tensor& t) { types_.push_back(tensorType(t, level)); });
  } else if (value.isInt()) {
    types_.push_back({ir::TypeKind::kInt, ir::kNone});
  } else if (value.isDouble()) {
    types_.push_back({ir::TypeKind::kFloat, ir::kNone});
  } else if (value.isBool()) {
    types_.push_back({ir::TypeKind::kBool, ir::kNone});
  } else {
    types_.push_back({ir::TypeKind::kNone, ir::kNone});
  }
}

void OpDrain::bindTensor(const at::Tensor& tensor, ir::ValueId value, MetaLevel level) {
  if (!tensor.defined()) {
    return;
  }
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const size_t stamp = metaStamp(*impl);
  const TensorTable::Known* known = table_.find(impl);
  // For an in-place operator, or one that returns its argument, the tensor keeps its value number, so that
  // its shadows stay right. If its metadata has changed (squeeze_, resize_, out=), it gets the new number.
  if (known != nullptr && known->stamp == stamp) {
    table_.setLevel(known->value, std::min(table_.level(known->value), level));
    return;
  }
  // A tensor without dimensions has no sizes that could vary.
  table_.bind(impl, stamp, value, level == MetaLevel::kRank && impl->dim() == 0 ? MetaLevel::kFull : level);
}

void OpDrain::bindResult(const c10::IValue& value, ir::ValueId& next, MetaLevel level) {
  if (value.isTensor() || value.isTensorList()) {
    forEachTensor(value, [&](const at::Tensor& t) { bindTensor(t, next++, level); });
    return;
  }
  DrainResult::ScalarOut out{next++, ir::TypeKind::kNone, 0, 0};
  if (value.isInt()) {
    out.kind = ir::TypeKind::kInt;
    out.i = value.toInt();
  } else if (value.isDouble()) {
    out.kind = ir::TypeKind::kFloat;
    out.f = value.toDouble();
  } else if (value.isBool()) {
    out.kind = ir::TypeKind::kBool;
    out.i = value.toBool() ? 1 : 0;
  } else {
    return;
  }
  result_.scalars.push_back(out);
}

void OpDrain::append(const OpLog::Entry& entry, const OpSchema& schema) {
  if (makesZero(entry)) {
    appendZero(log_.values[entry.firstOutput].toTensor());
    return;
  }
  if (appendSum(entry, schema)) {
    return;
  }
  std::vector<ir::Operand> operands;
  operands.reserve(schema.args.size());
  for (size_t k = 0; k < schema.args.size(); ++k) {
    operands.push_back(operandOf(log_.values[entry.firstInput + k], schema.args[k]));
  }
  const MetaLevel level = resultLevel(entry, schema);
  const bool likely = schema.likelyShape && inputsAreKnown(entry);
  types_.clear();
  for (size_t k = entry.firstOutput; k < entry.end; ++k) {
    addResult(log_.values[k], level);
  }
  const size_t index = trace_.append(ir::Op::kAten, operands, types_, snap_);
  trace_.code[index].opName = table_.opName(trace_, schema);
  ir::ValueId next = trace_.code[index].firstResult;
  for (size_t k = entry.firstOutput; k < entry.end; ++k) {
    bindResult(log_.values[k], next, level);
  }
  if (level != MetaLevel::kFull && mayGiveBack(schema, operands)) {
    table_.setMaybeArgument(trace_.code[index].firstResult);
  }
  for (ir::ValueId made = trace_.code[index].firstResult; likely && made < next; ++made) {
    table_.setLikely(made, schema);
  }
  ++result_.count;
  result_.dynamic = result_.dynamic || level != MetaLevel::kFull;
  result_.mutated = result_.mutated || schema.mutates;
  for (const OpSchema::Arg& result : schema.results) {
    result_.exits = result_.exits || (result.cls == ArgClass::kTensorList && level != MetaLevel::kFull);
  }
  if (entry.belowAutograd) {
    appendRequiresGrad(entry);
  }
}

// `requires_grad=True` of a factory function is no argument of the operator: the binding sets it on the
// result.
void OpDrain::appendRequiresGrad(const OpLog::Entry& entry) {
  if (entry.end != entry.firstOutput + 1 || !log_.values[entry.firstOutput].isTensor() ||
      !log_.values[entry.firstOutput].toTensor().requires_grad()) {
    return;
  }
  const at::Tensor& tensor = log_.values[entry.firstOutput].toTensor();
  static const OpSchema* schema = findOpSchema(ops::nameOf(Operator::kRequiresGradInPlace));
  const ir::ValueId made = table_.find(tensor.unsafeGetTensorImpl())->value;
  const ir::Operand operands[] = {ir::Operand::value(made), ir::Operand::boolean(true)};
  const ir::Type type = tensorType(tensor, MetaLevel::kFull);
  const size_t index = trace_.append(ir::Op::kAten, operands, {&type, 1}, snap_);
  trace_.code[index].opName = table_.opName(trace_, *schema);
  table_.bind(tensor.unsafeGetTensorImpl(), metaStamp(*tensor.unsafeGetTensorImpl()),
              trace_.code[index].firstResult, MetaLevel::kFull);
  ++result_.count;
}

}  // namespace kintsugi::torchapi
