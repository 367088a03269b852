// Inside torchapi only: the arguments of an `aten` instruction, prepared for the boxed stack.
//
// Ownership: BoxedArgs owns its constants. Threads: constant after construction; push() may run on many
// threads. GIL: not needed. Invalidation: none.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "ir/trace.h"
#include "torchapi/op_schema.h"
#include "torchapi/value.h"

namespace kintsugi::torchapi {

// The tensor that bindings make if a Python number is passed for a tensor.
at::Tensor wrappedNumber(const c10::Scalar& number);

class BoxedArgs {
 public:
  // False with a reason when an operand does not fit the schema.
  bool lower(const ir::Trace& trace, const ir::Instruction& instruction, const OpSchema& schema,
             std::string& reason);
  void push(const Value* values, std::vector<c10::IValue>& stack) const;
  size_t size() const { return args_.size(); }

 private:
  enum class Kind : uint8_t { kConstant, kTensor, kInt, kFloat, kBool, kNumber, kList };
  struct Arg {
    Kind kind = Kind::kConstant;
    ArgClass cls = ArgClass::kUnsupported;
    uint32_t index = 0;  // constant, value or list
  };
  struct Element {
    bool isValue = false;
    ir::ValueId value = ir::kNone;
    c10::IValue constant;
  };
  struct List {
    std::vector<Element> elements;
  };

  bool lowerArg(const ir::Trace& trace, const ir::Operand& operand, OpSchema::Arg arg);
  bool lowerValue(ir::ValueId value, ArgClass cls);
  bool lowerList(const ir::Trace& trace, const ir::Operand& operand, ArgClass cls);
  void addConstant(c10::IValue value);

  std::vector<Arg> args_;
  std::vector<c10::IValue> constants_;
  std::vector<List> lists_;
};

}  // namespace kintsugi::torchapi
