#include "ir/parser.h"

#include <limits>

#include "ir/dtype.h"
#include "ir/printer.h"
#include "ir/signature.h"

namespace kintsugi::ir {

namespace {

constexpr int kMaxDepth = 64;

std::optional<TypeKind> findTypeKind(std::string_view name) {
  for (const TypeKind kind : {TypeKind::kNone, TypeKind::kTensor, TypeKind::kInt, TypeKind::kFloat,
                              TypeKind::kBool, TypeKind::kObject}) {
    if (typeKindName(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(Cursor& cursor) : cursor_(cursor) {}

  Trace trace() {
    cursor_.expectWord("trace");
    cursor_.expect('@');
    trace_.file = cursor_.nameOrString(isFileChar);
    cursor_.expect(':');
    trace_.line =
        static_cast<int>(cursor_.integer(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
    trace_.function = cursor_.nameOrString(isFunctionChar);
    cursor_.expect('{');
    while (!cursor_.failed() && !cursor_.eat('}')) {
      statement();
    }
    finishValues();
    return std::move(trace_);
  }

 private:
  struct Definition {
    ValueId value;
    Type type;
    size_t position;
  };

  void statement() {
    if (cursor_.atEnd()) {
      cursor_.fail("the trace does not end, expected '}'");
    } else if (cursor_.peek('%')) {
      instruction();
    } else if (cursor_.eatWord("meta")) {
      metaLine();
    } else if (cursor_.eatWord("const")) {
      constLine();
    } else if (cursor_.eatWord("value")) {
      valueLine();
    } else if (cursor_.eatWord("recipe")) {
      recipeLine();
    } else if (cursor_.eatWord("snap")) {
      stateLine();
    } else {
      instruction();
    }
    if (!cursor_.lineEndsHere()) {
      cursor_.fail("expected the end of the line");
    }
  }

  // The number of a table's next row.
  void nextNumber(size_t position, size_t number, size_t expected) {
    if (number != expected) {
      cursor_.failAt(position, "expected number " + std::to_string(expected));
    }
  }

  void metaLine() {
    const size_t position = cursor_.here();
    nextNumber(position, static_cast<size_t>(cursor_.integer(0, kNone - 1)), trace_.metas.size());
    trace_.metas.push_back(meta());
  }

  TensorDesc meta() {
    TensorDesc meta;
    cursor_.expectWord("tensor");
    cursor_.expect('<');
    if (const std::optional<DType> dtype = named(dtypeOf, isWordChar, "unknown dtype")) meta.dtype = *dtype;
    cursor_.expect(',');
    meta.sizes = ints(true);
    cursor_.expect(',');
    if (const std::optional<Device> device = named(deviceOf, isDeviceChar, "unknown device"))
      meta.device = *device;
    if (cursor_.eat(',')) {
      metaFlags(meta);
    }
    cursor_.expect('>');
    if (meta.strides.empty() && meta.isFixed()) {
      meta.strides = packedStrides(meta.sizes);
    }
    return meta;
  }

  // What goes by the name that is next.
  template <typename T>
  std::optional<T> named(std::optional<T> (*find)(std::string_view), bool (*isPlain)(char),
                         const char* problem) {
    const size_t position = cursor_.here();
    const std::optional<T> found = find(cursor_.name(isPlain));
    if (!found) cursor_.failAt(position, problem);
    return found;
  }

  void metaFlags(TensorDesc& meta) {
    do {
      if (cursor_.eatWord("strides")) {
        cursor_.expect('=');
        meta.strides = ints();
      } else if (cursor_.eatWord("grad")) {
        meta.requiresGrad = true;
      } else if (cursor_.eatWord("param")) {
        meta.isParam = true;
      } else if (cursor_.eatWord("contiguous")) {
        meta.contiguity = Contiguity::kContiguous;
      } else if (cursor_.eatWord("strided")) {
        meta.contiguity = Contiguity::kStrided;
      } else {
        cursor_.fail("expected 'strides', 'grad', 'param', 'contiguous' or 'strided'");
      }
    } while (cursor_.eat(','));
  }

  std::vector<int64_t> ints(bool sizes = false) {
    std::vector<int64_t> numbers;
    cursor_.expect('[');
    if (cursor_.eat(']')) {
      return numbers;
    }
    do {
      numbers.push_back(sizes && cursor_.eat('?') ? kAnySize : cursor_.integer());
    } while (cursor_.eat(','));
    cursor_.expect(']');
    return numbers;
  }

  void constLine() {
    const size_t position = cursor_.here();
    nextNumber(position, cursor_.id('#'), trace_.constCount);
    ++trace_.constCount;
    trace_.constTexts.push_back(cursor_.lineEndsHere() ? std::string() : cursor_.string());
  }

  void valueLine() {
    const size_t position = cursor_.here();
    const ValueId value = cursor_.id('%');
    cursor_.expect(':');
    definitions_.push_back({value, type(), position});
  }

  Type type() {
    const size_t position = cursor_.here();
    const std::optional<TypeKind> kind = findTypeKind(cursor_.word());
    if (!kind.has_value()) {
      cursor_.failAt(position, "expected a type: tensor, int, float, bool, object or none");
      return {};
    }
    Type type{*kind, kNone};
    if (cursor_.eat('<')) {
      type.meta = static_cast<MetaId>(cursor_.integer(0, kNone - 1));
      cursor_.expect('>');
    }
    return type;
  }

  void recipeLine() {
    const size_t position = cursor_.here();
    nextNumber(position, cursor_.id('@'), trace_.recipes.size());
    Recipe recipe;
    const size_t kindPosition = cursor_.here();
    const std::optional<RecipeKind> kind = findRecipeKind(cursor_.word());
    if (!kind.has_value()) {
      cursor_.failAt(kindPosition, "unknown kind of recipe");
      return;
    }
    recipe.kind = *kind;
    recipe.type = cursor_.id('#');
    recipe.parts = bracketed(0);
    trace_.addRecipe(std::move(recipe));
  }

  void stateLine() {
    const size_t position = cursor_.here();
    nextNumber(position, cursor_.id('!'), trace_.states.size());
    cursor_.expect('{');
    FrameState state;
    key("parent");
    state.parent = cursor_.peek('!') ? cursor_.id('!') : (cursor_.expectWord("none"), kNone);
    key("code");
    state.code = cursor_.id('#');
    key("func");
    state.function = operand(0);
    key("pc");
    state.pc = static_cast<int32_t>(cursor_.integer(INT32_MIN, INT32_MAX));
    key("locals");
    const std::vector<Operand> locals = bracketed(0);
    key("stack");
    const std::vector<Operand> stack = bracketed(0);
    if (cursor_.eatWord("then")) {
      cursor_.expect('=');
      returnAction(state);
    }
    if (cursor_.eatWord("handled")) {
      cursor_.expect('=');
      state.handled = operand(0);
      key("over");
      state.handledOver = static_cast<uint16_t>(cursor_.integer(0, UINT16_MAX));
    }
    state.rebuildable = !cursor_.eatWord("norebuild");
    cursor_.expect('}');
    if (locals.size() > UINT16_MAX || stack.size() > UINT16_MAX) {
      cursor_.failAt(position, "the frame has too many slots");
    }
    if (!cursor_.failed()) {
      trace_.addState(state, locals, stack);
    }
  }

  void returnAction(FrameState& state) {
    for (uint8_t i = 0; !returnActionName(static_cast<ReturnAction>(i)).empty(); ++i) {
      const auto action = static_cast<ReturnAction>(i);
      if (!cursor_.eatWord(returnActionName(action))) {
        continue;
      }
      state.action = action;
      if (hasReplacement(action)) {
        state.replacement = operand(0);
      }
      return;
    }
    cursor_.fail("expected what is done with a result, as 'push' or 'discard'");
  }

  void key(std::string_view name) {
    cursor_.expectWord(name);
    cursor_.expect('=');
  }

  void instruction() {
    Instruction ins;
    std::vector<size_t> positions;
    results(ins, positions);
    opName(ins);
    std::vector<Operand> operands;
    if (!headEnds()) {
      do {
        operands.push_back(operand(0));
      } while (cursor_.eat(','));
    }
    ins.operandCount = static_cast<uint32_t>(operands.size());
    ins.firstOperand = static_cast<uint32_t>(trace_.operands.size());
    trace_.operands.insert(trace_.operands.end(), operands.begin(), operands.end());
    if (!cursor_.lineEndsHere() && cursor_.eatWord("kw")) {
      keywords(ins);
    }
    ins.deferrable = !cursor_.lineEndsHere() && cursor_.eatWord("deferrable");
    ins.region = regionMark();
    types(ins, positions);
    if (!cursor_.lineEndsHere() && cursor_.eatWord("snap")) {
      ins.snap = cursor_.id('!');
    }
    trace_.code.push_back(ins);
  }

  RegionMark regionMark() {
    if (cursor_.lineEndsHere()) {
      return RegionMark::kNone;
    }
    return cursor_.eatWord("opens")    ? RegionMark::kOpens
           : cursor_.eatWord("closes") ? RegionMark::kCloses
                                       : RegionMark::kNone;
  }

  // Is the next thing on this line no operand?
  bool headEnds() {
    if (cursor_.lineEndsHere() || cursor_.peek(':')) {
      return true;
    }
    Cursor ahead = cursor_;
    const std::string_view word = ahead.word();
    return word == "snap" || word == "kw" || word == "deferrable" || word == "opens" || word == "closes";
  }

  void results(Instruction& ins, std::vector<size_t>& positions) {
    if (!cursor_.peek('%')) {
      return;
    }
    do {
      positions.push_back(cursor_.here());
      const ValueId value = cursor_.id('%');
      if (ins.resultCount == 0) {
        ins.firstResult = value;
      } else if (value != ins.firstResult + ins.resultCount) {
        cursor_.failAt(positions.back(), "results are numbered one after the other");
      }
      ++ins.resultCount;
    } while (cursor_.eat(','));
    cursor_.expect('=');
  }

  void opName(Instruction& ins) {
    const size_t position = cursor_.here();
    const std::string_view word = cursor_.word();
    if (const std::optional<Op> op = findOp(word)) {
      ins.op = *op;
      if (*op == Op::kAten) {
        ins.opName = trace_.internOpName(cursor_.string());
      }
    } else if (word.find('.') != std::string_view::npos) {
      ins.op = Op::kAten;
      ins.opName = trace_.internOpName(word);
    } else {
      cursor_.failAt(position, word.empty() ? "expected an instruction"
                                            : "unknown operation '" + std::string(word) + "'");
    }
  }

  void keywords(Instruction& ins) {
    cursor_.expect('=');
    const size_t position = cursor_.here();
    const std::vector<Operand> names = bracketed(0);
    for (const Operand& name : names) {
      if (name.kind != OperandKind::kStr) {
        cursor_.failAt(position, "keyword names are strings");
      }
    }
    if (names.empty()) {
      cursor_.failAt(position, "expected a keyword name");
    }
    const Operand list = trace_.listOperand(names);
    ins.kwCount = list.count;
    ins.kwNames = list.id;
  }

  void types(const Instruction& ins, const std::vector<size_t>& positions) {
    if (ins.resultCount == 0) {
      return;
    }
    cursor_.expect(':');
    for (uint32_t r = 0; r < ins.resultCount && !cursor_.failed(); ++r) {
      if (r != 0) {
        cursor_.expect(',');
      }
      definitions_.push_back({ins.firstResult + r, type(), positions[r]});
    }
  }

  // Every number below the count of definitions has to be defined once, so that the table has no holes.
  void finishValues() {
    if (cursor_.failed()) {
      return;
    }
    std::vector<bool> defined(definitions_.size());
    trace_.values.resize(definitions_.size());
    for (const Definition& definition : definitions_) {
      if (definition.value >= defined.size()) {
        cursor_.failAt(definition.position, "values are numbered from 0 without holes");
        return;
      }
      if (defined[definition.value]) {
        cursor_.failAt(definition.position, "the value is defined twice");
        return;
      }
      defined[definition.value] = true;
      trace_.values[definition.value] = definition.type;
    }
  }

  std::vector<Operand> bracketed(int depth) {
    std::vector<Operand> elements;
    cursor_.expect('[');
    if (depth > kMaxDepth) {
      cursor_.fail("lists are nested too deep");
    }
    if (cursor_.failed() || cursor_.eat(']')) {
      return elements;
    }
    do {
      elements.push_back(operand(depth));
    } while (cursor_.eat(','));
    cursor_.expect(']');
    return elements;
  }

  Operand operand(int depth) {
    if (cursor_.peek('%')) {
      return Operand::value(cursor_.id('%'));
    }
    if (cursor_.peek('$')) {
      return Operand::source(cursor_.id('$'));
    }
    if (cursor_.peek('#')) {
      return Operand::constant(cursor_.id('#'));
    }
    if (cursor_.peek('@')) {
      return Operand::recipe(cursor_.id('@'));
    }
    if (cursor_.peekQuote()) {
      return trace_.stringOperand(cursor_.string());
    }
    if (cursor_.peek('[')) {
      return trace_.listOperand(bracketed(depth + 1));
    }
    if (cursor_.peekNumber()) {
      const Cursor::Number number = cursor_.number();
      return number.isFloat ? Operand::number(number.f) : Operand::integer(number.i);
    }
    return wordOperand();
  }

  Operand wordOperand() {
    const size_t position = cursor_.here();
    const std::string_view word = cursor_.word();
    if (word == "none") {
      return Operand::none();
    }
    if (word == "null") {
      return Operand::null();
    }
    if (word == "true" || word == "false") {
      return Operand::boolean(word == "true");
    }
    if (word == "complex") {
      return complex();
    }
    if (word == "dtype" || word == "device" || word == "layout" || word == "memfmt") {
      cursor_.expect(':');
      if (word == "dtype") {
        return dtype();
      }
      if (word == "device") {
        const uint32_t string = trace_.internString(cursor_.string());
        return Operand::make(OperandKind::kDevice, string);
      }
      return Operand::make(word == "layout" ? OperandKind::kLayout : OperandKind::kMemoryFormat,
                           cursor_.integer());
    }
    cursor_.failAt(position, "expected an operand");
    return {};
  }

  Operand dtype() {
    if (cursor_.peekNumber()) {
      return Operand::make(OperandKind::kDtype, cursor_.integer());
    }
    const std::optional<DType> dtype = named(dtypeOf, isWordChar, "unknown dtype");
    return dtype ? Operand::make(OperandKind::kDtype, static_cast<int64_t>(*dtype)) : Operand();
  }

  Operand complex() {
    const auto part = [this] {
      const Cursor::Number number = cursor_.number();
      return number.isFloat ? number.f : static_cast<double>(number.i);
    };
    cursor_.expect('(');
    const double real = part();
    cursor_.expect(',');
    const double imaginary = part();
    cursor_.expect(')');
    trace_.complexes.emplace_back(real, imaginary);
    return Operand::make(OperandKind::kComplex, static_cast<int64_t>(trace_.complexes.size() - 1));
  }

  Cursor& cursor_;
  Trace trace_;
  std::vector<Definition> definitions_;
};

}  // namespace

Trace readTrace(Cursor& cursor) { return Reader(cursor).trace(); }

diag::Result<Trace> parseTrace(std::string_view text) {
  Cursor cursor(text);
  Trace trace = readTrace(cursor);
  if (!cursor.atEnd()) {
    cursor.fail("expected the end of the text");
  }
  if (cursor.failed()) {
    return cursor.diagnostic();
  }
  return trace;
}

}  // namespace kintsugi::ir
