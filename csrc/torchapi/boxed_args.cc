#include "torchapi/boxed_args.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <c10/core/InferenceMode.h>

#include "support/check.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

bool isListClass(ArgClass cls) {
  switch (cls) {
    case ArgClass::kTensorList:
    case ArgClass::kOptionalTensorList:
    case ArgClass::kIntList:
    case ArgClass::kFloatList:
    case ArgClass::kBoolList:
    case ArgClass::kScalarList:
      return true;
    default:
      return false;
  }
}

// A constant operand as a scalar. None: it is no number.
c10::IValue numberOf(const ir::Trace& trace, const ir::Operand& operand) {
  switch (operand.kind) {
    case ir::OperandKind::kInt:
      return operand.i;
    case ir::OperandKind::kFloat:
      return operand.f;
    case ir::OperandKind::kBool:
      return operand.i != 0;
    case ir::OperandKind::kComplex: {
      const auto& [re, im] = trace.complexes[operand.id];
      return c10::complex<double>(re, im);
    }
    default:
      return {};
  }
}

c10::IValue numberOf(const Value& value) {
  switch (value.kind) {
    case ValueKind::kInt:
      return value.i;
    case ValueKind::kFloat:
      return value.f;
    case ValueKind::kBool:
      return value.i != 0;
    default:
      return {};
  }
}

at::Tensor tensorOf(const Value& value) {
  if (value.kind == ValueKind::kTensor) {
    return sharedTensor(value.tensor);
  }
  const c10::IValue number = numberOf(value);
  return number.isNone() ? at::Tensor() : wrappedNumber(number.toScalar());
}

// Makes a boxed list with elements of this class.
c10::IValue makeList(ArgClass cls, std::vector<c10::IValue> elements) {
  auto fill = [&elements](auto list, auto&& convert) {
    list.reserve(elements.size());
    for (c10::IValue& element : elements) {
      list.push_back(convert(element));
    }
    return c10::IValue(std::move(list));
  };
  switch (cls) {
    case ArgClass::kTensorList:
      return fill(c10::List<at::Tensor>(), [](c10::IValue& e) { return std::move(e).toTensor(); });
    case ArgClass::kOptionalTensorList:
      return fill(c10::List<std::optional<at::Tensor>>(), [](c10::IValue& e) {
        return e.isNone() ? std::optional<at::Tensor>() : std::optional<at::Tensor>(std::move(e).toTensor());
      });
    case ArgClass::kFloatList:
      return fill(c10::List<double>(),
                  [](c10::IValue& e) { return e.isInt() ? double(e.toInt()) : e.toDouble(); });
    case ArgClass::kBoolList:
      return fill(c10::List<bool>(), [](c10::IValue& e) { return e.toBool(); });
    case ArgClass::kScalarList:
      return fill(c10::List<c10::Scalar>(), [](c10::IValue& e) { return e.toScalar(); });
    default:
      return fill(c10::List<int64_t>(),
                  [](c10::IValue& e) { return e.isBool() ? int64_t(e.toBool()) : e.toInt(); });
  }
}

}  // namespace

at::Tensor wrappedNumber(const c10::Scalar& number) {
  // Makes an ordinary tensor, whatever the caller's modes, as the bindings do.
  c10::InferenceMode ordinary(false);
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool BoxedArgs::lower(const ir::Trace& trace, const ir::Instruction& instruction, const OpSchema& schema,
                      std::string& reason) {
  const auto operands = trace.operandsOf(instruction);
  if (operands.size() != schema.args.size()) {
    reason = schema.name + " takes " + std::to_string(schema.args.size()) + " arguments, not " +
             std::to_string(operands.size());
    return false;
  }
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!lowerArg(trace, operands[k], schema.args[k])) {
      reason = "argument " + std::to_string(k) + " of " + schema.name + " does not fit its schema";
      return false;
    }
  }
  return true;
}

void BoxedArgs::addConstant(c10::IValue value) {
  args_.push_back({Kind::kConstant, ArgClass::kUnsupported, static_cast<uint32_t>(constants_.size())});
  constants_.push_back(std::move(value));
}

bool BoxedArgs::lowerValue(ir::ValueId value, ArgClass cls) {
  Kind kind = Kind::kConstant;
  switch (cls) {
    case ArgClass::kTensor:
      kind = Kind::kTensor;
      break;
    case ArgClass::kInt:
      kind = Kind::kInt;
      break;
    case ArgClass::kFloat:
      kind = Kind::kFloat;
      break;
    case ArgClass::kBool:
      kind = Kind::kBool;
      break;
    case ArgClass::kScalar:
      kind = Kind::kNumber;
      break;
    default:
      return false;
  }
  args_.push_back({kind, cls, value});
  return true;
}

bool BoxedArgs::lowerList(const ir::Trace& trace, const ir::Operand& operand, ArgClass cls) {
  const bool tensors = cls == ArgClass::kTensorList || cls == ArgClass::kOptionalTensorList;
  List list;
  bool constant = true;
  for (const ir::Operand& element : trace.listOf(operand)) {
    Element lowered;
    if (element.isValue()) {
      KINTSUGI_CHECK(element.id < trace.values.size(), "%", element.id, " of ", trace.values.size());
      lowered.isValue = true;
      lowered.value = element.id;
      constant = false;
    } else if (element.kind != ir::OperandKind::kNone) {
      lowered.constant = numberOf(trace, element);
      if (lowered.constant.isNone()) {
        return false;
      }
      if (tensors) {
        lowered.constant = wrappedNumber(lowered.constant.toScalar());
      }
    } else if (cls == ArgClass::kTensorList) {
      lowered.constant = at::Tensor();
    } else if (cls != ArgClass::kOptionalTensorList) {
      return false;
    }
    list.elements.push_back(std::move(lowered));
  }
  if (constant && !tensors) {
    std::vector<c10::IValue> elements;
    for (Element& element : list.elements) {
      elements.push_back(std::move(element.constant));
    }
    addConstant(makeList(cls, std::move(elements)));
    return true;
  }
  args_.push_back({Kind::kList, cls, static_cast<uint32_t>(lists_.size())});
  lists_.push_back(std::move(list));
  return true;
}

bool BoxedArgs::lowerArg(const ir::Trace& trace, const ir::Operand& operand, OpSchema::Arg arg) {
  using ir::OperandKind;
  switch (operand.kind) {
    case OperandKind::kValue:
      KINTSUGI_CHECK(operand.id < trace.values.size(), "%", operand.id, " of ", trace.values.size());
      return lowerValue(operand.id, arg.cls);
    case OperandKind::kNone:
      // An undefined tensor, if the schema has no `?`.
      addConstant(arg.cls == ArgClass::kTensor && !arg.optional ? c10::IValue(at::Tensor()) : c10::IValue());
      return true;
    case OperandKind::kList:
      return isListClass(arg.cls) && lowerList(trace, operand, arg.cls);
    case OperandKind::kInt:
    case OperandKind::kFloat:
    case OperandKind::kBool:
    case OperandKind::kComplex: {
      c10::IValue number = numberOf(trace, operand);
      if (arg.cls == ArgClass::kTensor) {
        number = wrappedNumber(number.toScalar());
      } else if (arg.cls == ArgClass::kFloat && number.isInt()) {
        number = static_cast<double>(number.toInt());
      } else if (arg.cls == ArgClass::kInt && number.isBool()) {
        number = static_cast<int64_t>(number.toBool());
      }
      addConstant(std::move(number));
      return true;
    }
    case OperandKind::kStr:
      KINTSUGI_CHECK(operand.id < trace.strings.size(), "string ", operand.id, " of ", trace.strings.size());
      addConstant(trace.strings[operand.id]);
      return arg.cls == ArgClass::kString;
    case OperandKind::kDtype:
    case OperandKind::kLayout:
    case OperandKind::kMemoryFormat:
      addConstant(operand.i);
      return true;
    case OperandKind::kDevice:
      addConstant(c10::Device(trace.strings[operand.id]));
      return arg.cls == ArgClass::kDevice;
    case OperandKind::kSource:
    case OperandKind::kConst:
    case OperandKind::kRecipe:
    case OperandKind::kNull:
      return false;
  }
  return false;
}

void BoxedArgs::push(const Value* values, std::vector<c10::IValue>& stack) const {
  for (const Arg& arg : args_) {
    switch (arg.kind) {
      case Kind::kConstant:
        stack.emplace_back(constants_[arg.index]);
        break;
      case Kind::kTensor:
        stack.emplace_back(tensorOf(values[arg.index]));
        break;
      case Kind::kInt:
        KINTSUGI_DCHECK(
            values[arg.index].kind == ValueKind::kInt || values[arg.index].kind == ValueKind::kBool, "%",
            arg.index, " is no int");
        stack.emplace_back(values[arg.index].i);
        break;
      case Kind::kFloat: {
        const Value& v = values[arg.index];
        stack.emplace_back(v.kind == ValueKind::kFloat ? v.f : static_cast<double>(v.i));
        break;
      }
      case Kind::kBool:
        stack.emplace_back(values[arg.index].i != 0);
        break;
      case Kind::kNumber:
        stack.emplace_back(numberOf(values[arg.index]));
        break;
      case Kind::kList: {
        std::vector<c10::IValue> elements;
        const bool tensors = arg.cls == ArgClass::kTensorList || arg.cls == ArgClass::kOptionalTensorList;
        elements.reserve(lists_[arg.index].elements.size());
        for (const Element& e : lists_[arg.index].elements) {
          if (!e.isValue) {
            elements.push_back(e.constant);
          } else if (tensors) {
            elements.emplace_back(tensorOf(values[e.value]));
          } else {
            elements.push_back(numberOf(values[e.value]));
          }
        }
        stack.push_back(makeList(arg.cls, std::move(elements)));
        break;
      }
    }
  }
}

}  // namespace kintsugi::torchapi
