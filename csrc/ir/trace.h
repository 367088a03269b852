// A trace: one linear recording through all inlined calls. See docs/internals/ir.md.
//
//   trace @model.py:12 forward {
//     meta 0 tensor<f32,[32,64],cpu>
//     const #0 "Linear"
//     %0 = input $1 : tensor<0>
//     %1 = aten.relu.default %0 : tensor<0> snap !0
//     %2 = aten.is_nonzero.default %1 : bool snap !1
//     guard.true %2 snap !1
//     ret %1 snap !1
//     recipe @0 tuple #none [%1, 3]
//     snap !0 { parent=none code=#0 func=#1 pc=48 locals=[%0] stack=[] }
//   }
//
// Ownership: a Trace owns all of its tables. Constants are numbers here: the Python objects that they stand
// for are held by the runtime, in the same order. Sources (`$n`) are numbered by guard::SourceTable.
// Thread-safe while no thread writes; the recorder writes it under the GIL and never again after it was
// installed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/intern_index.h"
#include "ir/types.h"
#include "ops/operator_id.h"

namespace kintsugi::ir {

enum class Op : uint8_t {
#define KINTSUGI_OP(name, text, operands, results, flags) k##name,
#include "ir/ops.def"
  kCount
};

enum OpFlags : uint8_t { kNoFlags = 0, kExit = 1, kRaise = 2, kEffect = 4 };

struct OpInfo {
  const char* name;
  const char* text;
  const char* operands;
  const char* results;
  uint8_t flags;
};
const OpInfo& opInfo(Op op);

// Where a region begins and ends: a part of the program that runs under a mechanism of torch's which a call
// opens and another one closes (an activation checkpoint).
enum class RegionMark : uint8_t { kNone, kOpens, kCloses };

struct Instruction {
  Op op = Op::kRet;
  uint32_t opName = kNone;  // Aten: index into Trace::opNames ("aten.linear.default")
  uint32_t firstOperand = 0;
  uint32_t operandCount = 0;
  ValueId firstResult = kNone;  // results are numbered consecutively
  uint32_t resultCount = 0;
  StateId snap = kNone;
  // Call, CallKnown, CallPure: the last `kwCount` operands are keyword arguments, named by the tuple of
  // strings `kwNames` (an index into Trace::lists, kwCount kStr operands).
  uint32_t kwCount = 0;
  uint32_t kwNames = kNone;
  // An effect or call that neither reads nor changes what tensor operations touch, its own operands aside: it
  // may run after operations that follow it, as long as these change none of its operands and raise nothing.
  bool deferrable = false;
  // Of a known call, and of the guard block behind it. Inside a segment it is part of the graph: the backend
  // has a mechanism of its own for the region.
  RegionMark region = RegionMark::kNone;
};

// How an object made in the trace is built again. Parts are operands; nested recipes keep identity: one
// RecipeId is one object in one materialization.
enum class RecipeKind : uint8_t {
  kTuple,      // parts
  kList,       // parts
  kDict,       // key, value, key, value ...
  kSet,        // parts
  kFrozenSet,  // parts
  kSlice,      // start, stop, step
  // type (where there is none, the first part); parts: attribute name, value ... set on a `cls.__new__(cls)`
  kInstance,
  kDictInstance,  // type (a dict subclass); parts: n (int), n pairs of items, then attribute name, value ...
  kNamedTuple,    // type (a tuple subclass); parts
  kCell,          // content (null: empty)
  // code, globals, name, qualname, defaults, kwdefaults, closure, annotations; perhaps module, doc, dict
  kFunction,
  kMethod,            // function, self
  kSequenceIterator,  // container, index: iter(container) advanced to index
  kIterator,          // callable, n, args...: iter(callable(*args)), advanced n times or (n = -1) placed
  kCall,              // callable, args...: the result of a pure C callable
  // function, code unit of the yield (or a GeneratorState), number of locals, locals..., stack...: a
  // generator
  kGenerator,
  kCallEx,  // callable, tuple of arguments, dict of keywords: the same
  // type; n (int), n arguments, cause, context, suppress (bool), traceback, then attribute name, value ...
  kException,
  kTraceback,  // the rest of it (or null), code, globals, code unit: an entry before the rest
  // name, tuple of bases, cell `__class__` (or none), n (int), then name, value ...: n in the namespace that
  // it is made with, the rest set afterwards
  kClass,
};

struct Recipe {
  RecipeKind kind = RecipeKind::kTuple;
  ConstId type = kNone;
  std::vector<Operand> parts;
};

// Where a generator is that waits at no yield. One that runs is part of a snapshot only: the slots of its
// frame are those of the frame state whose `function` it is.
enum GeneratorState : int8_t { kNotStarted = -1, kRunning = -2, kFinished = -3 };

// What a frame does with the result of the call that is under way in it, when the frame above is left. The
// frame above is a generator's (or, but for kDelegate, a Python __next__) from kIterate to kClose: what it
// yields is an item, its return (or StopIteration) the end.
enum class ReturnAction : uint8_t {
  kPush,          // push it (an ordinary call)
  kDiscard,       // drop it (a Python __setattr__ or __setitem__ after a store)
  kReplace,       // drop it and push `replacement` (a Python __init__: the new instance)
  kIterate,       // FOR_ITER: push the item; at the end pop the iterator and jump
  kDelegate,      // SEND: push the item; at the end put what was returned in its place and jump
  kNext,          // next(), send(), throw(): push the item; at the end raise StopIteration
  kNextOr,        // next() with a default: push the item, or `replacement`
  kClose,         // close(): push None; an item is an error
  kCallable,      // push it, and above it the null of a callable (a getter after LOAD_METHOD)
  kOperand,       // push it; the instruction at `pc` is under way, and goes on with it
  kOperandBelow,  // the same, with `replacement` above it (the items of `f(*iterable, **keywords)`)
};
constexpr bool hasReplacement(ReturnAction action) {
  return action == ReturnAction::kReplace || action == ReturnAction::kNextOr ||
         action == ReturnAction::kOperandBelow;
}
constexpr bool givesOperand(ReturnAction action) {
  return action == ReturnAction::kOperand || action == ReturnAction::kOperandBelow;
}

// The state of one frame at one place. The chain over `parent` is a snapshot: innermost frame first.
// In the innermost frame `pc` is the code unit to run next (an exit) or the one that raised (an exception);
// in the others it is the code unit after the call that is under way, whose result is to be pushed, or the
// instruction that has made the call to get an operand (givesOperand()).
struct FrameState {
  StateId parent = kNone;
  ConstId code = kNone;
  Operand function;  // what to call to get such a frame, or the generator that is to be resumed
  int32_t pc = 0;
  uint32_t firstSlot =
      0;  // into Trace::slots: localCount locals (cells and free variables included), then the stack
  uint16_t localCount = 0;
  uint16_t stackCount = 0;
  ReturnAction action = ReturnAction::kPush;  // printed as `then=push|discard|replace <operand>|iterate ...`
  Operand replacement;
  // The exception that the frame handles (null: none). The stack slot `handledOver`, whose operand is null,
  // keeps what was handled before, which the frame finds when it is made again.
  Operand handled = Operand::null();
  uint16_t handledOver = 0;
  bool rebuildable =
      true;  // false: an exit here is impossible (class body, generator ...): the verifier refuses it

  // Of an outer frame: a code unit of the instruction that is under way.
  int32_t waitingUnit() const { return givesOperand(action) ? pc : pc - 1; }
};

struct Trace {
  std::string file;
  std::string function;
  int line = 0;
  std::vector<Instruction> code;
  std::vector<Operand> operands;
  std::vector<Operand> lists;
  std::vector<Operand> slots;
  std::vector<Type> values;  // type of each value
  std::vector<TensorDesc> metas;
  std::vector<Recipe> recipes;
  std::vector<FrameState> states;
  std::vector<std::string> opNames;
  std::vector<std::string> strings;
  std::vector<std::pair<double, double>> complexes;
  std::vector<std::string> constTexts;  // descriptions for people; may be empty
  uint32_t constCount = 0;

  std::span<const Operand> operandsOf(const Instruction& ins) const {
    return {operands.data() + ins.firstOperand, ins.operandCount};
  }
  std::span<const Operand> listOf(const Operand& o) const { return {lists.data() + o.id, o.count}; }
  std::span<const Operand> localsOf(const FrameState& s) const {
    return {slots.data() + s.firstSlot, s.localCount};
  }
  std::span<const Operand> stackOf(const FrameState& s) const {
    return {slots.data() + s.firstSlot + s.localCount, s.stackCount};
  }

  // Builders. The recorder is their main user; they check operands against ops.def in debug builds.
  ValueId addValue(Type type);
  MetaId internMeta(TensorDesc meta);
  uint32_t internString(std::string_view text);
  uint32_t internOpName(std::string_view name);
  uint32_t internOpName(ops::Operator op);
  Operand stringOperand(std::string_view text) {
    return Operand::make(OperandKind::kStr, internString(text));
  }
  Operand listOperand(std::span<const Operand> elements);
  RecipeId addRecipe(Recipe recipe);
  StateId addState(FrameState state, std::span<const Operand> locals, std::span<const Operand> stack);
  // Appends an instruction whose results have the given types; returns its index. The first result's id is in
  // code[index].firstResult.
  size_t append(Op op, std::span<const Operand> operandsOfIt, std::span<const Type> results,
                StateId snap = kNone);

  // Which of the operators that we know something of an Aten calls. kUnknown: another one, or no Aten.
  ops::Operator operatorOf(const Instruction& ins) const;
  size_t countOf(Op op) const;
  // A tensor that has the same sizes in each run.
  bool hasFixedSizes(const Type& type) const { return type.meta != kNone && metas[type.meta].isFixed(); }

 private:
  InternIndex metaIndex_;
  InternIndex stringIndex_;
  InternIndex opNameIndex_;
};

}  // namespace kintsugi::ir
