#include "ir/printer.h"

#include "ir/dtype.h"
#include "ir/signature.h"
#include "ir/text.h"

namespace kintsugi::ir {

namespace {

// Deeper lists than the parser accepts come only from invalid traces, whose lists may contain themselves.
constexpr int kMaxDepth = 64;

// A dispatcher's name that reads back as one: a dotted word that is no operation of the closed set.
bool isPlainOpName(std::string_view name) {
  const bool letterFirst =
      !name.empty() && isWordChar(name[0]) && name[0] != '.' && !(name[0] >= '0' && name[0] <= '9');
  if (!letterFirst || name.find('.') == std::string_view::npos || findOp(name).has_value()) {
    return false;
  }
  for (const char c : name) {
    if (!isWordChar(c)) {
      return false;
    }
  }
  return true;
}

class Printer {
 public:
  Printer(const Trace& trace, std::string& out) : trace_(trace), out_(out) {}

  void trace() {
    out_ += "trace @";
    appendName(out_, trace_.file, isFileChar);
    out_ += ':';
    appendInt(out_, trace_.line);
    out_ += ' ';
    appendName(out_, trace_.function, isFunctionChar);
    out_ += " {\n";
    metas();
    consts();
    undefinedValues();
    for (const Instruction& ins : trace_.code) {
      out_ += "  ";
      instruction(ins);
      out_ += '\n';
    }
    recipes();
    states();
    out_ += "}\n";
  }

  void meta(const TensorDesc& meta) {
    out_ += "tensor<";
    out_ += dtypeName(meta.dtype);
    out_ += ',';
    sizes(meta.sizes);
    out_ += ',';
    out_ += deviceName(meta.device);
    if (meta.hasOwnStrides()) {
      out_ += ",strides=";
      ints(meta.strides);
    }
    out_ += meta.requiresGrad ? ",grad" : "";
    out_ += meta.isParam ? ",param" : "";
    out_ += meta.contiguity == Contiguity::kEither    ? ""
            : meta.contiguity == Contiguity::kStrided ? ",strided"
                                                      : ",contiguous";
    out_ += '>';
  }

  void sizes(const std::vector<int64_t>& numbers) {
    out_ += '[';
    for (size_t i = 0; i < numbers.size(); ++i) {
      out_ += i == 0 ? "" : ",";
      out_ += numbers[i] == kAnySize ? "?" : std::to_string(numbers[i]);
    }
    out_ += ']';
  }

  void instruction(const Instruction& ins) {
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      out_ += r == 0 ? "" : ", ";
      appendId(out_, '%', ins.firstResult + r);
    }
    out_ += ins.resultCount == 0 ? "" : " = ";
    opName(ins);
    if (size_t{ins.firstOperand} + ins.operandCount > trace_.operands.size()) {
      out_ += " ?";
      return;
    }
    const std::span<const Operand> operands = trace_.operandsOf(ins);
    for (size_t i = 0; i < operands.size(); ++i) {
      out_ += i == 0 ? " " : ", ";
      operand(operands[i], 0);
    }
    if (ins.kwCount != 0) {
      out_ += " kw=";
      operand(Operand::make(OperandKind::kList, ins.kwNames, ins.kwCount), 0);
    }
    out_ += ins.deferrable ? " deferrable" : "";
    out_ += ins.region == RegionMark::kOpens ? " opens" : ins.region == RegionMark::kCloses ? " closes" : "";
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const size_t value = size_t{ins.firstResult} + r;
      out_ += r == 0 ? " : " : ", ";
      type(value < trace_.values.size() ? trace_.values[value] : Type{});
    }
    if (ins.snap != kNone) {
      out_ += " snap ";
      appendId(out_, '!', ins.snap);
    }
  }

  void operand(const Operand& o, int depth) {
    switch (o.kind) {
      case OperandKind::kNone:
        out_ += "none";
        break;
      case OperandKind::kNull:
        out_ += "null";
        break;
      case OperandKind::kValue:
        appendId(out_, '%', o.id);
        break;
      case OperandKind::kSource:
        appendId(out_, '$', o.id);
        break;
      case OperandKind::kConst:
        appendId(out_, '#', o.id);
        break;
      case OperandKind::kRecipe:
        appendId(out_, '@', o.id);
        break;
      case OperandKind::kInt:
        appendInt(out_, o.i);
        break;
      case OperandKind::kFloat:
        appendFloat(out_, o.f);
        break;
      case OperandKind::kBool:
        out_ += o.i != 0 ? "true" : "false";
        break;
      case OperandKind::kStr:
        string(o.id);
        break;
      case OperandKind::kComplex:
        complex(o.id);
        break;
      case OperandKind::kDtype:
        out_ += "dtype:";
        if (const std::string_view name = dtypeName(o.i); !name.empty()) {
          out_ += name;
        } else {
          appendInt(out_, o.i);
        }
        break;
      case OperandKind::kDevice:
        out_ += "device:";
        string(o.id);
        break;
      case OperandKind::kLayout:
        out_ += "layout:";
        appendInt(out_, o.i);
        break;
      case OperandKind::kMemoryFormat:
        out_ += "memfmt:";
        appendInt(out_, o.i);
        break;
      case OperandKind::kList:
        if (size_t{o.id} + o.count > trace_.lists.size() || depth > kMaxDepth) {
          out_ += '?';
        } else {
          operands(trace_.listOf(o), depth + 1);
        }
        break;
    }
  }

 private:
  void string(uint32_t id) {
    if (id < trace_.strings.size()) {
      appendQuoted(out_, trace_.strings[id]);
    } else {
      out_ += '?';
    }
  }

  void complex(uint32_t id) {
    if (id >= trace_.complexes.size()) {
      out_ += '?';
      return;
    }
    out_ += "complex(";
    appendFloat(out_, trace_.complexes[id].first);
    out_ += ", ";
    appendFloat(out_, trace_.complexes[id].second);
    out_ += ')';
  }

  void operands(std::span<const Operand> elements, int depth) {
    out_ += '[';
    for (size_t i = 0; i < elements.size(); ++i) {
      out_ += i == 0 ? "" : ", ";
      operand(elements[i], depth);
    }
    out_ += ']';
  }

  void ints(const std::vector<int64_t>& numbers) {
    out_ += '[';
    for (size_t i = 0; i < numbers.size(); ++i) {
      out_ += i == 0 ? "" : ",";
      appendInt(out_, numbers[i]);
    }
    out_ += ']';
  }

  void type(const Type& type) {
    out_ += typeKindName(type.kind);
    if (type.meta != kNone) {
      out_ += '<';
      appendInt(out_, type.meta);
      out_ += '>';
    }
  }

  void opName(const Instruction& ins) {
    if (ins.op != Op::kAten) {
      out_ += opInfo(ins.op).text;
    } else if (ins.opName >= trace_.opNames.size()) {
      out_ += "aten ?";
    } else if (const std::string& name = trace_.opNames[ins.opName]; isPlainOpName(name)) {
      out_ += name;
    } else {
      out_ += "aten ";
      appendQuoted(out_, name);
    }
  }

  void metas() {
    for (size_t i = 0; i < trace_.metas.size(); ++i) {
      out_ += "  meta ";
      appendInt(out_, static_cast<int64_t>(i));
      out_ += ' ';
      meta(trace_.metas[i]);
      out_ += '\n';
    }
  }

  void consts() {
    for (uint32_t i = 0; i < trace_.constCount; ++i) {
      out_ += "  const ";
      appendId(out_, '#', i);
      if (i < trace_.constTexts.size() && !trace_.constTexts[i].empty()) {
        out_ += ' ';
        appendQuoted(out_, trace_.constTexts[i]);
      }
      out_ += '\n';
    }
  }

  void undefinedValues() {
    std::vector<bool> defined(trace_.values.size());
    for (const Instruction& ins : trace_.code) {
      for (uint32_t r = 0; r < ins.resultCount && size_t{ins.firstResult} + r < defined.size(); ++r) {
        defined[ins.firstResult + r] = true;
      }
    }
    for (size_t i = 0; i < defined.size(); ++i) {
      if (!defined[i]) {
        out_ += "  value ";
        appendId(out_, '%', static_cast<uint32_t>(i));
        out_ += " : ";
        type(trace_.values[i]);
        out_ += '\n';
      }
    }
  }

  void recipes() {
    for (size_t i = 0; i < trace_.recipes.size(); ++i) {
      out_ += "  recipe ";
      appendId(out_, '@', static_cast<uint32_t>(i));
      out_ += ' ';
      out_ += recipeKindName(trace_.recipes[i].kind);
      out_ += ' ';
      appendId(out_, '#', trace_.recipes[i].type);
      out_ += ' ';
      operands(trace_.recipes[i].parts, 0);
      out_ += '\n';
    }
  }

  void states() {
    for (size_t i = 0; i < trace_.states.size(); ++i) {
      const FrameState& state = trace_.states[i];
      out_ += "  snap ";
      appendId(out_, '!', static_cast<uint32_t>(i));
      out_ += " { parent=";
      if (state.parent == kNone) {
        out_ += "none";
      } else {
        appendId(out_, '!', state.parent);
      }
      out_ += " code=";
      appendId(out_, '#', state.code);
      out_ += " func=";
      operand(state.function, 0);
      out_ += " pc=";
      appendInt(out_, state.pc);
      const bool inRange =
          size_t{state.firstSlot} + state.localCount + state.stackCount <= trace_.slots.size();
      out_ += " locals=";
      operands(inRange ? trace_.localsOf(state) : std::span<const Operand>(), 0);
      out_ += " stack=";
      operands(inRange ? trace_.stackOf(state) : std::span<const Operand>(), 0);
      returnAction(state);
      handled(state);
      out_ += state.rebuildable ? " }\n" : " norebuild }\n";
    }
  }

  // Only what is not the ordinary case, a push.
  void returnAction(const FrameState& state) {
    if (state.action == ReturnAction::kPush) {
      return;
    }
    out_ += " then=";
    out_ += returnActionName(state.action);
    if (hasReplacement(state.action)) {
      out_ += ' ';
      operand(state.replacement, 0);
    }
  }

  void handled(const FrameState& state) {
    if (state.handled.kind == OperandKind::kNull) {
      return;
    }
    out_ += " handled=";
    operand(state.handled, 0);
    out_ += " over=";
    appendInt(out_, state.handledOver);
  }

  const Trace& trace_;
  std::string& out_;
};

}  // namespace

void printTo(std::string& out, const Trace& trace) { Printer(trace, out).trace(); }

std::string print(const Trace& trace) {
  std::string out;
  printTo(out, trace);
  return out;
}

std::string printOperand(const Trace& trace, const Operand& operand) {
  std::string out;
  Printer(trace, out).operand(operand, 0);
  return out;
}

std::string printInstruction(const Trace& trace, size_t index) {
  std::string out;
  if (index < trace.code.size()) {
    Printer(trace, out).instruction(trace.code[index]);
  }
  return out;
}

std::string printMeta(const TensorDesc& meta) {
  static const Trace kEmpty;
  std::string out;
  Printer(kEmpty, out).meta(meta);
  return out;
}

std::string_view recipeKindName(RecipeKind kind) {
  switch (kind) {
    case RecipeKind::kTuple:
      return "tuple";
    case RecipeKind::kList:
      return "list";
    case RecipeKind::kDict:
      return "dict";
    case RecipeKind::kSet:
      return "set";
    case RecipeKind::kFrozenSet:
      return "frozenset";
    case RecipeKind::kSlice:
      return "slice";
    case RecipeKind::kInstance:
      return "instance";
    case RecipeKind::kDictInstance:
      return "dictinstance";
    case RecipeKind::kNamedTuple:
      return "namedtuple";
    case RecipeKind::kCell:
      return "cell";
    case RecipeKind::kFunction:
      return "function";
    case RecipeKind::kMethod:
      return "method";
    case RecipeKind::kSequenceIterator:
      return "seqiter";
    case RecipeKind::kIterator:
      return "iterator";
    case RecipeKind::kGenerator:
      return "generator";
    case RecipeKind::kCall:
      return "call";
    case RecipeKind::kCallEx:
      return "callex";
    case RecipeKind::kException:
      return "exception";
    case RecipeKind::kTraceback:
      return "traceback";
    case RecipeKind::kClass:
      return "class";
  }
  return {};
}

std::string_view returnActionName(ReturnAction action) {
  switch (action) {
    case ReturnAction::kPush:
      return "push";
    case ReturnAction::kDiscard:
      return "discard";
    case ReturnAction::kReplace:
      return "replace";
    case ReturnAction::kIterate:
      return "iterate";
    case ReturnAction::kDelegate:
      return "delegate";
    case ReturnAction::kNext:
      return "next";
    case ReturnAction::kNextOr:
      return "nextor";
    case ReturnAction::kClose:
      return "close";
    case ReturnAction::kCallable:
      return "callable";
    case ReturnAction::kOperand:
      return "operand";
    case ReturnAction::kOperandBelow:
      return "operandbelow";
  }
  return {};
}

std::optional<RecipeKind> findRecipeKind(std::string_view name) {
  for (uint8_t i = 0; !recipeKindName(static_cast<RecipeKind>(i)).empty(); ++i) {
    if (recipeKindName(static_cast<RecipeKind>(i)) == name) {
      return static_cast<RecipeKind>(i);
    }
  }
  return std::nullopt;
}

std::optional<Op> findOp(std::string_view text) {
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    if (opInfo(static_cast<Op>(i)).text == text) {
      return static_cast<Op>(i);
    }
  }
  return std::nullopt;
}

}  // namespace kintsugi::ir
