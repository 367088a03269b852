#include "torchapi/op_schema.h"

#include <ATen/core/jit_type.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "ops/operator.h"

namespace kintsugi::torchapi {

using ops::Trait;

namespace {

ArgClass elementClass(const c10::Type& element) {
  switch (element.kind()) {
    case c10::TypeKind::TensorType:
      return ArgClass::kTensorList;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgClass::kIntList;
    case c10::TypeKind::FloatType:
      return ArgClass::kFloatList;
    case c10::TypeKind::BoolType:
      return ArgClass::kBoolList;
    case c10::TypeKind::NumberType:
      return ArgClass::kScalarList;
    case c10::TypeKind::StringType:
      return ArgClass::kStringList;
    case c10::TypeKind::OptionalType: {
      const auto& inner = static_cast<const c10::OptionalType&>(element).getElementType();
      return inner->kind() == c10::TypeKind::TensorType ? ArgClass::kOptionalTensorList
                                                        : ArgClass::kUnsupported;
    }
    default:
      return ArgClass::kUnsupported;
  }
}

OpSchema::Arg classify(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType: {
      OpSchema::Arg arg = classify(*static_cast<const c10::OptionalType&>(type).getElementType());
      arg.optional = true;
      return arg;
    }
    case c10::TypeKind::TensorType:
      return {ArgClass::kTensor};
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return {ArgClass::kInt};
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return {ArgClass::kFloat};
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return {ArgClass::kBool};
    case c10::TypeKind::NumberType:
      return {ArgClass::kScalar};
    case c10::TypeKind::StringType:
      return {ArgClass::kString};
    case c10::TypeKind::ScalarTypeType:
      return {ArgClass::kDtype};
    case c10::TypeKind::LayoutType:
      return {ArgClass::kLayout};
    case c10::TypeKind::MemoryFormatType:
      return {ArgClass::kMemoryFormat};
    case c10::TypeKind::DeviceObjType:
      return {ArgClass::kDevice};
    case c10::TypeKind::GeneratorType:
      return {ArgClass::kGenerator};
    case c10::TypeKind::ListType:
      return {elementClass(*static_cast<const c10::ListType&>(type).getElementType())};
    default:
      return {};
  }
}

std::string irName(const c10::OperatorName& name) {
  std::string text = name.name;
  const size_t colons = text.find("::");
  if (colons != std::string::npos) {
    text.replace(colons, 2, ".");
  }
  return text + "." + (name.overload_name.empty() ? "default" : name.overload_name);
}

struct OpTable {
  std::mutex lock;
  std::unordered_map<const void*, std::unique_ptr<OpSchema>> bySchema;
};

OpTable& opTable() {
  // Never destroyed: traces may be freed while the process exits.
  static OpTable* table = new OpTable;
  return *table;
}

}  // namespace

OpSchema::OpSchema(const c10::OperatorHandle& handle) : op(handle), name(irName(handle.operator_name())) {
  const c10::FunctionSchema& schema = handle.schema();
  for (const c10::Argument& arg : schema.arguments()) {
    args.push_back(classify(*arg.real_type()));
  }
  for (const c10::Argument& result : schema.returns()) {
    results.push_back(classify(*result.real_type()));
  }
  mutates = schema.is_mutable() || handle.hasTag(at::Tag::nondeterministic_seeded) ||
            handle.hasTag(at::Tag::maybe_aliasing_or_mutating) || ops::has(name, Trait::kWritesUnmarked);
  const bool known = ops::isTorchs(name);
  dynamicIfMask = ops::has(name, Trait::kSizesOfMasks);
  dynamicShape = !known || ops::has(name, Trait::kSizesOfData) ||
                 (!dynamicIfMask && (handle.hasTag(at::Tag::dynamic_output_shape) ||
                                     handle.hasTag(at::Tag::data_dependent_output)));
  likelyShape = !known && !handle.hasTag(at::Tag::dynamic_output_shape) &&
                !handle.hasTag(at::Tag::data_dependent_output);
  makesEmpty = ops::has(name, Trait::kMakesEmpty);
  ofMetadata = ops::has(name, Trait::kOfMetadata);
  rankOfSizes = !known || ops::has(name, Trait::kRankOfSizes);
  rankOfNumbers = ops::has(name, Trait::kRankOfNumbers);
  identityOfType = ops::has(name, Trait::kIdentityOfType);
  identityOfSizes = ops::has(name, Trait::kIdentityOfSizes);
}

const OpSchema& opSchemaOf(const c10::OperatorHandle& op) {
  OpTable& table = opTable();
  std::lock_guard<std::mutex> hold(table.lock);
  std::unique_ptr<OpSchema>& entry = table.bySchema[&op.schema()];
  if (!entry) {
    entry = std::make_unique<OpSchema>(op);
  }
  return *entry;
}

bool mayHaveEffects(const c10::OperatorHandle& op) {
  const OpSchema& schema = opSchemaOf(op);
  return schema.mutates || !ops::isTorchs(schema.name);
}

const OpSchema* findOpSchema(std::string_view name) {
  const size_t first = name.find('.');
  const size_t last = name.rfind('.');
  if (first == std::string_view::npos || first == last) {
    return nullptr;
  }
  std::string overload(name.substr(last + 1));
  if (overload == "default") {
    overload.clear();
  }
  const std::string base =
      std::string(name.substr(0, first)) + "::" + std::string(name.substr(first + 1, last - first - 1));
  const auto op = c10::Dispatcher::singleton().findSchema({base, overload});
  return op ? &opSchemaOf(*op) : nullptr;
}

}  // namespace kintsugi::torchapi
