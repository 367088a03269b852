#include "ir/signature.h"

#include <algorithm>
#include <cstring>

namespace kintsugi::ir {

namespace {

// The type of an operand that a scalar letter may take: its value's, or the immediate's own.
TypeKind scalarKind(const Trace& trace, const Operand& operand) {
  switch (operand.kind) {
    case OperandKind::kInt:
      return TypeKind::kInt;
    case OperandKind::kFloat:
      return TypeKind::kFloat;
    case OperandKind::kBool:
      return TypeKind::kBool;
    case OperandKind::kValue:
      return operand.id < trace.values.size() ? trace.values[operand.id].kind : TypeKind::kNone;
    case OperandKind::kNone:
    case OperandKind::kSource:
    case OperandKind::kConst:
    case OperandKind::kRecipe:
    case OperandKind::kStr:
    case OperandKind::kComplex:
    case OperandKind::kDtype:
    case OperandKind::kDevice:
    case OperandKind::kLayout:
    case OperandKind::kMemoryFormat:
    case OperandKind::kList:
    case OperandKind::kNull:
      return TypeKind::kNone;
  }
  return TypeKind::kNone;
}

bool letterAccepts(const Trace& trace, char letter, const Operand& operand) {
  const TypeKind scalar = scalarKind(trace, operand);
  switch (letter) {
    case 'v':
      return operand.kind == OperandKind::kValue;
    case 'i':
      return scalar == TypeKind::kInt;
    case 'f':
      return scalar == TypeKind::kFloat;
    case 'b':
      return scalar == TypeKind::kBool;
    case 'n':
      return scalar == TypeKind::kInt || scalar == TypeKind::kFloat || scalar == TypeKind::kBool;
    case 's':
      return operand.kind == OperandKind::kStr;
    case 'S':
      return operand.kind == OperandKind::kSource;
    case 'B':
      return operand.kind == OperandKind::kInt;
    case 'R':
      return operand.kind == OperandKind::kRecipe;
    case 'o':
      return true;
    default:
      return false;
  }
}

std::string_view letterName(char letter) {
  switch (letter) {
    case 'v':
      return "a value";
    case 'i':
      return "an int";
    case 'f':
      return "a float";
    case 'b':
      return "a bool";
    case 'n':
      return "a number";
    case 's':
      return "a string";
    case 'S':
      return "a source";
    case 'B':
      return "a guard block's number";
    case 'R':
      return "a recipe";
    default:
      return "an operand";
  }
}

bool resultAccepts(char letter, TypeKind kind) {
  switch (letter) {
    case 'i':
      return kind == TypeKind::kInt;
    case 'f':
      return kind == TypeKind::kFloat;
    case 'b':
      return kind == TypeKind::kBool;
    case 't':
      return kind == TypeKind::kTensor;
    case 'o':
      return kind == TypeKind::kObject;
    default:
      return true;
  }
}

std::string checkResults(const OpInfo& info, std::span<const Type> results) {
  const char letter = info.results[0];
  if (letter == '*') {
    return {};
  }
  const size_t expected = letter == '-' ? 0 : 1;
  if (results.size() != expected) {
    return "has " + std::to_string(results.size()) + " results, expected " + std::to_string(expected);
  }
  if (expected == 1 && !resultAccepts(letter, results[0].kind)) {
    return "its result may not be of type " + std::string(typeKindName(results[0].kind));
  }
  return {};
}

}  // namespace

std::string_view typeKindName(TypeKind kind) {
  switch (kind) {
    case TypeKind::kNone:
      return "none";
    case TypeKind::kTensor:
      return "tensor";
    case TypeKind::kInt:
      return "int";
    case TypeKind::kFloat:
      return "float";
    case TypeKind::kBool:
      return "bool";
    case TypeKind::kObject:
      return "object";
  }
  return "?";
}

std::string_view operandKindName(OperandKind kind) {
  switch (kind) {
    case OperandKind::kNone:
      return "none";
    case OperandKind::kValue:
      return "value";
    case OperandKind::kSource:
      return "source";
    case OperandKind::kConst:
      return "constant";
    case OperandKind::kRecipe:
      return "recipe";
    case OperandKind::kInt:
      return "int";
    case OperandKind::kFloat:
      return "float";
    case OperandKind::kBool:
      return "bool";
    case OperandKind::kStr:
      return "string";
    case OperandKind::kComplex:
      return "complex";
    case OperandKind::kDtype:
      return "dtype";
    case OperandKind::kDevice:
      return "device";
    case OperandKind::kLayout:
      return "layout";
    case OperandKind::kMemoryFormat:
      return "memory format";
    case OperandKind::kList:
      return "list";
    case OperandKind::kNull:
      return "null";
  }
  return "?";
}

std::string describeOperand(const Trace& trace, const Operand& operand) {
  if (operand.isValue() && operand.id < trace.values.size()) {
    return std::string(typeKindName(trace.values[operand.id].kind)) + " value %" + std::to_string(operand.id);
  }
  return std::string(operandKindName(operand.kind));
}

std::string checkSignature(const Trace& trace, Op op, std::span<const Operand> operands,
                           std::span<const Type> results) {
  const OpInfo& info = opInfo(op);
  const size_t letters = std::strlen(info.operands);
  const bool open = letters > 0 && info.operands[letters - 1] == '*';
  // The repeated letter's own place; a dispatcher's operator may have no operand at all, a call has its
  // callee.
  const size_t fixed = open ? letters - 2 : letters;
  const size_t required = open && op != Op::kAten ? fixed + 1 : fixed;
  if (operands.size() < required || (!open && operands.size() > required)) {
    return "has " + std::to_string(operands.size()) + " operands, expected " + std::to_string(required) +
           (open ? " or more" : "");
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const char letter = info.operands[std::min(i, fixed)];
    if (!letterAccepts(trace, letter, operands[i])) {
      return "operand " + std::to_string(i) + " (" + describeOperand(trace, operands[i]) + ") should be " +
             std::string(letterName(letter));
    }
  }
  return checkResults(info, results);
}

}  // namespace kintsugi::ir
