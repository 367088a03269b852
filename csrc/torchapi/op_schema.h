// Inside torchapi only: what the recorder and the executor know about an operator, derived once from its
// schema.
//
// Ownership: OpSchemas live as long as the process (operators are few); pointers to them never die. Threads:
// the table is locked; an OpSchema is constant. GIL: not needed. Invalidation: none. An operator that is
// deregistered (a custom library unloaded) must not be called again.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kintsugi::torchapi {

// Types of arguments and results, as far as the IR can express them.
enum class ArgClass : uint8_t {
  kTensor,
  kTensorList,
  kInt,
  kFloat,
  kBool,
  kScalar,
  kString,
  kDtype,
  kLayout,
  kMemoryFormat,
  kDevice,
  kIntList,
  kFloatList,
  kBoolList,
  kScalarList,
  kOptionalTensorList,
  kStringList,
  kGenerator,  // only None
  kUnsupported,
};

struct OpSchema {
  struct Arg {
    ArgClass cls = ArgClass::kUnsupported;
    bool optional = false;
  };
  c10::OperatorHandle op;
  std::string name;  // aten.linear.default
  std::vector<Arg> args;
  std::vector<Arg> results;
  bool mutates = false;        // writes to a tensor or draws random numbers
  bool dynamicShape = false;   // the sizes of the results depend on the data
  bool likelyShape = false;    // nothing says whether the sizes depend on the data
  bool dynamicIfMask = false;  // they depend on the data if an index is a mask, or a number is negative
  bool makesEmpty = false;     // makes uninitialized memory
  bool ofMetadata = false;     // the result follows from metadata alone
  // The rank of the results depends on sizes, or is not known to be independent of them.
  bool rankOfSizes = false;
  bool rankOfNumbers = false;  // the rank of the results depends on numbers among the arguments
  // Whether it gives an argument back as it is follows from ranks, types, devices and flags of the arguments.
  bool identityOfType = false;
  bool identityOfSizes = false;  // the same, if it follows from sizes or strides

  explicit OpSchema(const c10::OperatorHandle& handle);
};

// The entry of an operator. It is made when it is first asked for.
const OpSchema& opSchemaOf(const c10::OperatorHandle& op);
// True if a call may change something: memory, a generator, or anything, if the operator is a library's.
bool mayHaveEffects(const c10::OperatorHandle& op);
// By the name that the IR uses: namespace.name.overload, `default` for the empty overload. Null: no such
// operator.
const OpSchema* findOpSchema(std::string_view name);

}  // namespace kintsugi::torchapi
