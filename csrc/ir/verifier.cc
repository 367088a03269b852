#include "ir/verifier.h"

#include <algorithm>

#include "ir/printer.h"
#include "ir/segments.h"
#include "ir/signature.h"

namespace kintsugi::ir {

namespace {

constexpr size_t kMaxProblems = 20;

bool mayLeave(Op op) { return (opInfo(op).flags & (kExit | kRaise)) != 0; }

// The last definition that something depends on: the index of its instruction, and the value. An undefined
// value counts as one that is defined after the end.
struct Latest {
  uint32_t index = 0;  // one past the defining instruction
  ValueId value = kNone;

  void join(const Latest& other) {
    if (other.index > index) {
      *this = other;
    }
  }
};

class Verifier {
 public:
  Verifier(const Trace& trace, VerifierMode mode) : trace_(trace), mode_(mode) {}

  std::vector<Problem> run() {
    checkTables();
    checkDefinitions();
    // What follows indexes the tables by what was found to be in range.
    if (problems_.empty()) {
      computeLatest();
      computeRebuildable();
    }
    if (problems_.empty()) {
      for (size_t i = 0; i < trace_.code.size(); ++i) {
        checkInstruction(i);
      }
      mode_ == VerifierMode::kSegment ? checkSegmentAlone() : checkEnd();
    }
    if (problems_.empty() && mode_ != VerifierMode::kContinued &&
        trace_.countOf(Op::kSegment) + trace_.countOf(Op::kSegmentEnd) != 0) {
      for (auto& [index, message] : checkSegments(trace_, mode_ == VerifierMode::kSegment)) {
        problem(printInstruction(trace_, index), std::move(message));
      }
    }
    if (problems_.size() > kMaxProblems) {
      problems_.resize(kMaxProblems);
    }
    return std::move(problems_);
  }

 private:
  void problem(std::string place, std::string message) {
    if (problems_.size() <= kMaxProblems) {
      problems_.push_back({std::move(place), std::move(message)});
    }
  }

  std::string row(char prefix, size_t number) const {
    return std::string(prefix == '@' ? "recipe @" : "snap !") + std::to_string(number);
  }

  bool inRange(const Operand& o) const {
    switch (o.kind) {
      case OperandKind::kValue:
        return o.id < trace_.values.size();
      case OperandKind::kConst:
        return o.id < trace_.constCount;
      case OperandKind::kRecipe:
        return o.id < trace_.recipes.size();
      case OperandKind::kStr:
      case OperandKind::kDevice:
        return o.id < trace_.strings.size();
      case OperandKind::kComplex:
        return o.id < trace_.complexes.size();
      case OperandKind::kList:
        return size_t{o.id} + o.count <= trace_.lists.size();
      case OperandKind::kSource:
        return o.id != kNone;
      case OperandKind::kNone:
      case OperandKind::kInt:
      case OperandKind::kFloat:
      case OperandKind::kBool:
      case OperandKind::kDtype:
      case OperandKind::kLayout:
      case OperandKind::kMemoryFormat:
      case OperandKind::kNull:
        return true;
    }
    return false;
  }

  template <typename Place>
  void checkRange(std::span<const Operand> operands, const Place& place) {
    for (const Operand& o : operands) {
      if (!inRange(o)) {
        problem(place(),
                "there is no " + std::string(operandKindName(o.kind)) + " " + printOperand(trace_, o));
      }
    }
  }

  void checkTables() {
    checkLists();
    std::vector<bool> ofOperator(trace_.values.size());
    for (const Instruction& ins : trace_.code) {
      for (size_t v = ins.firstResult; ins.op == Op::kAten && v < size_t{ins.firstResult} + ins.resultCount;
           ++v) {
        if (v < ofOperator.size()) {
          ofOperator[v] = true;
        }
      }
    }
    for (size_t v = 0; v < trace_.values.size(); ++v) {
      checkType(trace_.values[v], v, ofOperator[v]);
    }
    if (trace_.constTexts.size() > trace_.constCount) {
      problem("trace", "more descriptions of constants than constants");
    }
    for (size_t r = 0; r < trace_.recipes.size(); ++r) {
      const Recipe& recipe = trace_.recipes[r];
      checkRange(recipe.parts, [&] { return row('@', r); });
      if (recipe.type != kNone && recipe.type >= trace_.constCount) {
        problem(row('@', r), "there is no constant #" + std::to_string(recipe.type));
      }
    }
    for (size_t s = 0; s < trace_.states.size(); ++s) {
      checkState(s);
    }
    for (size_t i = 0; i < trace_.code.size(); ++i) {
      checkInstructionRange(i);
    }
  }

  // A list lies before the list that it is an element of, so no list contains itself.
  void checkLists() {
    for (size_t at = 0; at < trace_.lists.size(); ++at) {
      const Operand& o = trace_.lists[at];
      if (!inRange(o)) {
        problem("lists",
                "there is no " + std::string(operandKindName(o.kind)) + " " + printOperand(trace_, o));
      } else if (o.kind == OperandKind::kList && size_t{o.id} + o.count > at) {
        problem("lists", "a list is made before its element " + std::to_string(at));
      }
    }
  }

  // `mayMiss`: an operator gives it, perhaps as a tensor that is not defined.
  void checkType(const Type& type, size_t value, bool mayMiss) {
    const std::string place = "%" + std::to_string(value);
    if (type.kind == TypeKind::kNone) {
      if (!mayMiss) {
        problem(place, "the value has no type");
      }
    } else if (type.meta != kNone && type.kind != TypeKind::kTensor) {
      problem(place, "only tensors have metadata");
    } else if (type.meta != kNone && type.meta >= trace_.metas.size()) {
      problem(place, "there is no meta " + std::to_string(type.meta));
    }
  }

  void checkState(size_t s) {
    const FrameState& state = trace_.states[s];
    const auto place = [&] { return row('!', s); };
    if (size_t{state.firstSlot} + state.localCount + state.stackCount > trace_.slots.size()) {
      problem(place(), "its slots lie outside the table");
      return;
    }
    if (state.parent != kNone && state.parent >= trace_.states.size()) {
      problem(place(), "there is no parent !" + std::to_string(state.parent));
    }
    if (state.code >= trace_.constCount) {
      problem(place(), "its code object is no constant of the trace");
    }
    checkRange({&state.function, 1}, place);
    checkRange({&state.replacement, 1}, place);
    checkRange({&state.handled, 1}, place);
    if (state.handled.kind != OperandKind::kNull && state.handledOver >= state.stackCount) {
      problem(place(), "what was handled before lies outside the stack");
    }
    checkRange(trace_.localsOf(state), place);
    checkRange(trace_.stackOf(state), place);
  }

  void checkInstructionRange(size_t i) {
    const Instruction& ins = trace_.code[i];
    const auto place = [&] { return printInstruction(trace_, i); };
    if (size_t{ins.firstOperand} + ins.operandCount > trace_.operands.size()) {
      problem(place(), "its operands lie outside the table");
      return;
    }
    checkRange(trace_.operandsOf(ins), place);
    if (ins.resultCount != 0 && size_t{ins.firstResult} + ins.resultCount > trace_.values.size()) {
      problem(place(), "its results lie outside the table");
    }
    if (ins.snap != kNone && ins.snap >= trace_.states.size()) {
      problem(place(), "there is no snap !" + std::to_string(ins.snap));
    }
    if (ins.op == Op::kAten && ins.opName >= trace_.opNames.size()) {
      problem(place(), "the operator has no name");
    }
    if (ins.kwCount != 0) {
      checkKeywords(ins, place());
    }
  }

  void checkKeywords(const Instruction& ins, const std::string& place) {
    const bool isCall = ins.op == Op::kCall || ins.op == Op::kCallKnown || ins.op == Op::kCallPure;
    if (!isCall) {
      problem(place, "only calls have keyword arguments");
    } else if (size_t{ins.kwNames} + ins.kwCount > trace_.lists.size()) {
      problem(place, "its keyword names lie outside the table");
    } else if (ins.kwCount >= ins.operandCount) {
      problem(place, "more keyword names than arguments");
    } else {
      const std::span<const Operand> names(trace_.lists.data() + ins.kwNames, ins.kwCount);
      if (!std::all_of(names.begin(), names.end(),
                       [](const Operand& o) { return o.kind == OperandKind::kStr; })) {
        problem(place, "keyword names are strings");
      }
    }
  }

  void checkDefinitions() {
    definedAt_.assign(trace_.values.size(), kNone);
    ValueId next = 0;
    if (mode_ == VerifierMode::kSegment && problems_.empty() && !trace_.code.empty()) {
      std::vector<ValueId> inputs;
      collectValues(trace_, trace_.operandsOf(trace_.code.front()), inputs);
      for (const ValueId value : inputs) {
        definedAt_[value] = 0;
      }
    }
    for (size_t i = 0; i < trace_.code.size(); ++i) {
      const Instruction& ins = trace_.code[i];
      for (uint32_t r = 0; r < ins.resultCount && size_t{ins.firstResult} + r < definedAt_.size(); ++r) {
        const ValueId value = ins.firstResult + r;
        if (definedAt_[value] != kNone) {
          problem(printInstruction(trace_, i), "%" + std::to_string(value) + " is defined twice");
        } else if (mode_ == VerifierMode::kRecorded && value < next) {
          problem(printInstruction(trace_, i), "values are numbered in the order of their definitions");
        }
        definedAt_[value] = static_cast<uint32_t>(i);
        next = std::max(next, value + 1);
      }
    }
  }

  Latest latestOf(const Operand& o) const {
    Latest latest;
    if (o.kind == OperandKind::kValue) {
      const uint32_t at = definedAt_[o.id];
      latest = {at == kNone ? kNone : at + 1, o.id};
    } else if (o.kind == OperandKind::kRecipe) {
      latest = recipeLatest_[o.id];
    } else if (o.kind == OperandKind::kList) {
      for (const Operand& element : trace_.listOf(o)) {
        latest.join(latestOf(element));  // checkLists() has ruled out cycles
      }
    }
    return latest;
  }

  Latest latestOf(std::span<const Operand> operands) const {
    Latest latest;
    for (const Operand& o : operands) {
      latest.join(latestOf(o));
    }
    return latest;
  }

  // Recipes may name each other in any order, and in circles: repeated until nothing changes, which is at
  // once when the parts come first.
  void computeLatest() {
    recipeLatest_.assign(trace_.recipes.size(), Latest{});
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < trace_.recipes.size(); ++r) {
        const Latest latest = latestOf(trace_.recipes[r].parts);
        changed = changed || latest.index != recipeLatest_[r].index;
        recipeLatest_[r] = latest;
      }
    }
    stateLatest_.assign(trace_.states.size(), Latest{});
    for (size_t s = 0; s < trace_.states.size(); ++s) {
      const FrameState& state = trace_.states[s];
      Latest latest = latestOf(state.function);
      latest.join(latestOf(state.replacement));
      latest.join(latestOf(state.handled));
      latest.join(latestOf(trace_.localsOf(state)));
      latest.join(latestOf(trace_.stackOf(state)));
      stateLatest_[s] = latest;
    }
  }

  // Folds what holds for a state's parents into the state; a cycle of parents ends it.
  void computeRebuildable() {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(trace_.states.size(), Mark::kNew);
    rebuildable_.assign(trace_.states.size(), true);
    std::vector<StateId> chain;
    for (size_t s = 0; s < trace_.states.size(); ++s) {
      auto id = static_cast<StateId>(s);
      for (chain.clear(); id != kNone && marks[id] == Mark::kNew; id = trace_.states[id].parent) {
        marks[id] = Mark::kOpen;
        chain.push_back(id);
      }
      if (id != kNone && marks[id] == Mark::kOpen) {
        problem(row('!', id), "its parents form a cycle");
        return;
      }
      for (; !chain.empty(); chain.pop_back()) {
        const StateId at = chain.back();
        const StateId parent = trace_.states[at].parent;
        rebuildable_[at] = trace_.states[at].rebuildable && (parent == kNone || rebuildable_[parent]);
        if (parent != kNone) {
          stateLatest_[at].join(stateLatest_[parent]);
        }
        marks[at] = Mark::kDone;
      }
    }
  }

  void checkInstruction(size_t i) {
    const Instruction& ins = trace_.code[i];
    const std::span<const Operand> operands = trace_.operandsOf(ins);
    const std::span<const Type> results =
        ins.resultCount == 0 ? std::span<const Type>()
                             : std::span<const Type>(trace_.values.data() + ins.firstResult, ins.resultCount);
    if (const std::string wrong = checkSignature(trace_, ins.op, operands, results); !wrong.empty()) {
      problem(printInstruction(trace_, i), wrong);
    }
    const bool takesInputs = mode_ == VerifierMode::kSegment && i == 0;
    if (const Latest latest = latestOf(operands); latest.index > i && !takesInputs) {
      problem(printInstruction(trace_, i), "uses %" + std::to_string(latest.value) + " before it is defined");
    }
    if (ins.op == Op::kGuardMeta && operands.size() == 2 && operands[1].kind == OperandKind::kInt &&
        (operands[1].i < 0 || static_cast<uint64_t>(operands[1].i) >= trace_.metas.size())) {
      problem(printInstruction(trace_, i), "there is no meta " + std::to_string(operands[1].i));
    }
    checkSnapshot(i);
  }

  void checkSnapshot(size_t i) {
    const Instruction& ins = trace_.code[i];
    if (mode_ == VerifierMode::kSegment && ins.snap != kNone) {
      problem(printInstruction(trace_, i), "a segment alone has no snapshots");
    }
    if (!mayLeave(ins.op) || mode_ == VerifierMode::kSegment) {
      return;
    }
    if (ins.snap == kNone && ins.op == Op::kRet) {
      return;  // a result that is made without running the program's code: nothing there raises
    }
    if (isLookup(ins)) {
      return;
    }
    if (ins.snap == kNone) {
      problem(printInstruction(trace_, i), "may leave the trace but has no snapshot");
      return;
    }
    // A guard block without guards never fails; the document's verifier knows which have some.
    const bool exits = (opInfo(ins.op).flags & kExit) != 0 && ins.op != Op::kGuardBlock;
    if (exits && !rebuildable_[ins.snap]) {
      problem(printInstruction(trace_, i), "may exit where the frames can't be rebuilt");
    }
    if (const Latest latest = stateLatest_[ins.snap]; latest.index > i) {
      problem(printInstruction(trace_, i),
              "its snapshot uses %" + std::to_string(latest.value) + " before it is defined");
    }
  }

  void checkEnd() {
    if (trace_.code.empty() || trace_.code.back().op != Op::kRet) {
      problem("trace", "does not end with ret");
    }
    for (size_t i = 0; i + 1 < trace_.code.size(); ++i) {
      if (trace_.code[i].op == Op::kRet) {
        problem(printInstruction(trace_, i), "ret before the end");
      }
    }
  }

  void checkSegmentAlone() {
    if (trace_.code.size() < 2 || trace_.code.front().op != Op::kSegment ||
        trace_.code.back().op != Op::kSegmentEnd) {
      problem("segment", "does not go from its mark to its end");
    }
    for (size_t i = 1; i + 1 < trace_.code.size(); ++i) {
      if (!isInGraph(trace_.code[i])) {
        problem(printInstruction(trace_, i), "is no part of a segment's graph");
      }
    }
  }

  const Trace& trace_;
  VerifierMode mode_;
  std::vector<Problem> problems_;
  std::vector<uint32_t> definedAt_;
  std::vector<Latest> recipeLatest_;
  std::vector<Latest> stateLatest_;
  std::vector<bool> rebuildable_;
};

}  // namespace

std::vector<Problem> verify(const Trace& trace, VerifierMode mode) { return Verifier(trace, mode).run(); }

std::string formatProblems(std::span<const Problem> problems) {
  std::string out;
  for (const Problem& problem : problems) {
    out += problem.format();
    out += '\n';
  }
  return out;
}

}  // namespace kintsugi::ir
