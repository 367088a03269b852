// The operators of ATen that Kintsugi knows more of than their schemas say, and what it knows: a table made
// from ops/operators.def. Rules that are functions (derivatives, decompositions, views) are columns of the
// same rows, in passes/operator_rules.h.
//
//   ops::find("aten.add.Tensor") == ops::Operator::kAddTensor
//   ops::infoOf("aten.dropout.default").quietIfZero[0] == 1
//   ops::has(ops::Operator::kReshape, ops::Trait::kMayCopy)
//
// Ownership: constants. Threads: any. No GIL. Nothing invalidates it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/operator_id.h"

namespace kintsugi::ops {

enum class Operator : uint16_t {
  kUnknown,
#define KTG_OPERATOR(id, name, ...) id,
#include "ops/operators.def"
  kCount
};
inline constexpr auto kOperatorCount = static_cast<size_t>(Operator::kCount);

// Each is explained in operators.def.
enum class Trait : uint8_t {
#define KTG_TRAIT(id, text) id,
#include "ops/traits.def"
};
constexpr uint32_t bitOf(Trait trait) { return uint32_t{1} << static_cast<unsigned>(trait); }

// What an operator does with tensors whose channels lie last.
enum class LayoutRole : uint8_t {
  kOther,    // takes tensors as eager mode has them
  kSame,     // its result has the layout of its arguments of four dimensions
  kReads,    // takes both layouts; its result does not depend on them
  kProduct,  // is faster with the channels last, and its result has them last
};

// Rows of a copy of the first argument that are written.
enum class RowUpdateKind : uint8_t {
  kNone,
  kAddRows,
  kCopyRows,
  kScatter,
  kScatterAdd,
  kScatterNumber,
  kOther
};

// When the result is the first argument itself: the same tensor, with its version counter.
//
//   aten.to.dtype %0, f32, false, false   kSameForm, 3: %0 if it has that dtype already, and argument 3
//                                         (`copy`) is false
struct GivesBack {
  enum class When : uint8_t {
    kNever,
    kAlways,     // an operator in place
    kSameForm,   // dtype, device, sizes and strides are those of the argument, and `operand` is not true
    kSameSizes,  // dtype and sizes are those of the argument
    kIfQuiet,    // an argument of OperatorInfo::quietIfZero is zero
  };
  When when = When::kNever;
  int8_t operand = -1;  // -1: there is none
};

// Which operands say what slice of the first argument the result is; -1: there is none.
//   aten.slice.Tensor %0, 1, 2, 5, 1      elements 2 to 4 of dimension 1
//   aten.select.int %0, 1, 2              element 2: without `end` the result lacks the dimension
struct SliceOperands {
  int8_t dim = -1;  // -1: it is no slice
  int8_t start = -1;
  int8_t end = -1;
  int8_t step = -1;
};

// Which operands of a matrix product are what.
struct ProductOperands {
  uint8_t left = 0;
  uint8_t right = 0;
  int8_t added = -1;     // what is added; -1: nothing
  bool byRows = false;   // the matrix has a row for each column of the result
  uint8_t operands = 0;  // more have to be what they are by default; 0: it is no product
};

// Which operands of attention are what, after query, key and value; a negative number: there is none.
struct AttentionOperands {
  int8_t mask = -1;  // -1: it is no attention
  int8_t dropout = -1;
  int8_t causal = -1;
  int8_t scale = -1;
  int8_t grouped = -1;
};

// What the library of convolutions computes after one, as ATen does, NaN included.
struct Activation {
  static constexpr double kOperand = -1;
  std::string_view attribute;  // empty: none
  uint8_t operands = 0;        // so many; those that follow are not looked at
  double slope = 0;            // what the attribute takes; kOperand: the second operand
  std::string_view text;       // the second operand; empty: it is no text
};

// What `_foreach_<name>` takes beside the lists of tensors.
enum class ForeachTakes : uint8_t {
  kAny,
  kLists,    // lists alone: of numbers it is another operator
  kNumbers,  // numbers alone: a tensor would hold one for each tensor of the lists
};
struct Foreach {
  std::string_view name;  // empty: there is none
  ForeachTakes takes = ForeachTakes::kAny;
};

struct OperatorInfo {
  Operator id = Operator::kUnknown;
  std::string_view name;
  uint32_t traits = 0;
  std::array<int8_t, 2> quietIfZero{-1, -1};  // operands, one of which is enough; -1: none
  LayoutRole layout = LayoutRole::kOther;
  RowUpdateKind rowUpdate = RowUpdateKind::kNone;
  Operator newForm = Operator::kUnknown;
  GivesBack givesBack;
  SliceOperands slice;
  ProductOperands product;
  AttentionOperands attention;
  Activation activation;
  Foreach foreach;
  std::string_view torchFrom;    // "2.14", where only later minor versions of torch have it; empty: no bound
  std::string_view torchBefore;  // the same for earlier ones

  constexpr bool has(Trait trait) const { return (traits & bitOf(trait)) != 0; }
};

// |result - true value| <= ulp * (spacing of floats at the true value) + ofX * (spacing of floats at x) +
// least
//
// Bounds of native code for elementary functions of f32, over the whole range of floats. ofX is for formulas
// of ATen's in which numbers cancel: what they lose is lost in eager mode, too. True values below `least` may
// become 0, where ATen's formula divides by an infinity. NaN, infinities and signs of zeros are eager mode's.
// Smaller floats are rounded once more.
struct Accuracy {
  std::string_view name;
  std::string_view argument;  // besides the tensor; empty: none
  double ulp;
  double ofX;
  double least;
};

// By the name that the IR uses: namespace.name.overload. kUnknown: it has no row.
Operator find(std::string_view name);
const OperatorInfo& infoOf(Operator op);
inline const OperatorInfo& infoOf(std::string_view name) { return infoOf(find(name)); }
inline std::string_view nameOf(Operator op) { return infoOf(op).name; }
inline bool has(Operator op, Trait trait) { return infoOf(op).has(trait); }
// Of an overload, those of its packet included.
bool has(std::string_view name, Trait trait);
std::vector<std::string_view> traitNamesOf(std::string_view name);  // "fresh" for Trait::kFresh

// Is it one of torch's own, whose schemas and tags can be relied on?
bool isTorchs(std::string_view name);
// Does it exchange data with other processes, or wait for that? How often it runs and in which order matters
// then, also where nothing uses its results; and its schema does not tell that memory which it has returned
// is written to until the program has waited.
bool isCollective(std::string_view name);
// ATen's convention: `aten.add_.Tensor` writes to its first argument.
bool isInPlace(std::string_view name);
// What computes a new tensor, of one that writes to its first argument: aten.add.Tensor. Empty for others.
std::string newForm(std::string_view name);
// The operator, or what makes a new tensor where it writes to its first argument.
Operator formOf(std::string_view name);
// Is it the derivative of another one, by its name?
bool isBackward(std::string_view name);

// The name of a `_foreach_` operator without its prefix, and whether it writes to the tensors of the first
// list.
struct ForeachName {
  std::string_view name;      // add
  std::string_view overload;  // List
  bool inPlace = false;
};
bool parseForeach(std::string_view name, ForeachName& out);
// What `_foreach_<name>` does to each. kUnknown: no row says so.
Operator findForeach(std::string_view name);

std::span<const OperatorInfo> operators();  // by id, from kUnknown on
std::span<const Accuracy> accuracies();

}  // namespace kintsugi::ops
