#include "passes/kernel_text.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "passes/size_text.h"

namespace kintsugi::passes {

namespace {

constexpr std::string_view kInner[] = {"unit", "zero", "strided"};
constexpr int64_t kMostNumber = std::numeric_limits<int32_t>::max();

// The flags of a kernel, by name.
struct FlagRow {
  std::string_view name;
  bool Kernel::*flag;
};
constexpr FlagRow kFlags[] = {{"rows", &Kernel::hasReductions},
                              {"columns", &Kernel::columns},
                              {"long", &Kernel::longRows},
                              {"over", &Kernel::over}};

// The numbers of a product, by name.
struct NumberRow {
  std::string_view name;
  int64_t KernelProduct::*number;
};
constexpr NumberRow kProductNumbers[] = {{"k", &KernelProduct::k},
                                         {"leftstride", &KernelProduct::leftStride},
                                         {"rightstride", &KernelProduct::rightStride},
                                         {"chunk", &KernelProduct::chunk},
                                         {"depth", &KernelProduct::depth}};

void appendProduct(std::string& out, const KernelProduct& product) {
  out += "product " + std::to_string(product.left) + " " + std::to_string(product.right);
  for (const NumberRow& row : kProductNumbers) {
    out += " " + std::string(row.name) + "=" + std::to_string(product.*row.number);
  }
  out += product.rightByColumns ? " columns" : "";
  out += product.batched ? " batched" : "";
}

void appendAttention(std::string& out, const KernelAttention& attention) {
  out += "attention head=" + std::to_string(attention.headSize) +
         " value=" + std::to_string(attention.valueSize) + " keys=" + textOf(attention.keys) +
         " group=" + std::to_string(attention.group);
  out += attention.causal ? " causal" : "";
  out += attention.emptyZero ? " zeros" : "";
  out += attention.few ? " few" : "";
}

void appendAccess(std::string& out, const KernelAccess& access) {
  out += access.store ? "out" : "in";
  if (access.node != ir::kNone) {
    out += " %" + std::to_string(access.node);
  }
  out += " ";
  appendElem(out, access.elem);
  out += " strides=";
  appendSizes(out, access.strides);
  out += " " + std::string(kInner[static_cast<size_t>(access.inner)]);
  out += access.offset != 0 ? " offset=" + std::to_string(access.offset) : "";
  out += access.uniform ? " uniform" : "";
  out += access.transposed ? " turned" : "";
  out += access.repeat != 1 ? " repeat=" + std::to_string(access.repeat) : "";
}

void appendOp(std::string& out, const KernelOp& op) {
  switch (op.kind) {
    case KernelOpKind::kLoad:
      out += "load " + std::to_string(op.access);
      break;
    case KernelOpKind::kConst:
      out += "const ";
      isFloat(op.elem) ? ir::appendFloat(out, op.number) : ir::appendInt(out, op.integer);
      break;
    case KernelOpKind::kProduct:
      out += "product";
      break;
    case KernelOpKind::kScore:
      out += "score";
      break;
    case KernelOpKind::kPoint:
    case KernelOpKind::kReduce:
      out += coreInfo(op.op).text;
  }
  for (size_t k = 0; k < op.args.size(); ++k) {
    out += (k == 0 ? "(" : ", ") + std::to_string(op.args[k]);
  }
  out += op.args.empty() ? " " : ") ";
  appendElem(out, op.elem);
  appendPlaces(out, op.bounds, op.indexed);
}

class Reader {
 public:
  explicit Reader(ir::Cursor& cursor) : cursor_(cursor) {}

  Kernel read() {
    cursor_.expectWord("kernel");
    while (!cursor_.failed() && !cursor_.eat('{')) {
      flag();
    }
    while (!cursor_.failed() && !cursor_.eat('}')) {
      row();
      if (!cursor_.lineEndsHere()) {
        cursor_.fail("expected the end of the line");
      }
    }
    checkNumbers();
    return std::move(kernel_);
  }

 private:
  void flag() {
    for (const FlagRow& row : kFlags) {
      if (cursor_.eatWord(row.name)) {
        kernel_.*row.flag = true;
        return;
      }
    }
    cursor_.fail("expected '{', 'rows', 'columns', 'long' or 'over'");
  }

  void row() {
    if (cursor_.atEnd()) {
      cursor_.fail("the kernel does not end, expected '}'");
    } else if (cursor_.eatWord("over")) {
      kernel_.sizes = readSizes(cursor_);
    } else if (cursor_.eatWord("in")) {
      access(false);
    } else if (cursor_.eatWord("out")) {
      access(true);
    } else if (cursor_.eatWord("store")) {
      const uint32_t op = number();
      cursor_.expectWord("to");
      kernel_.stores.push_back({op, number()});
    } else if (cursor_.eatWord("product")) {
      product();
    } else if (cursor_.eatWord("attention")) {
      attention();
    } else {
      op();
    }
  }

  uint32_t number() { return static_cast<uint32_t>(cursor_.integer(0, kMostNumber)); }
  int64_t keyed(std::string_view name) {
    cursor_.expectWord(name);
    cursor_.expect('=');
    return cursor_.integer();
  }

  void product() {
    KernelProduct product;
    product.left = number();
    product.right = number();
    for (const NumberRow& row : kProductNumbers) {
      product.*row.number = keyed(row.name);
    }
    product.rightByColumns = cursor_.eatWord("columns");
    product.batched = cursor_.eatWord("batched");
    kernel_.product = product;
  }

  void attention() {
    KernelAttention attention;
    attention.headSize = keyed("head");
    attention.valueSize = keyed("value");
    cursor_.expectWord("keys");
    cursor_.expect('=');
    attention.keys = readSize(cursor_);
    attention.group = keyed("group");
    attention.causal = cursor_.eatWord("causal");
    attention.emptyZero = cursor_.eatWord("zeros");
    attention.few = cursor_.eatWord("few");
    kernel_.attention = attention;
  }

  void access(bool store) {
    KernelAccess access;
    access.store = store;
    access.node = cursor_.peek('%') ? cursor_.id('%') : ir::kNone;
    access.elem = readElem(cursor_);
    cursor_.expectWord("strides");
    cursor_.expect('=');
    access.strides = readSizes(cursor_);
    size_t inner = 0;
    while (inner < std::size(kInner) && !cursor_.eatWord(kInner[inner])) {
      ++inner;
    }
    if (inner == std::size(kInner)) {
      cursor_.fail("expected 'unit', 'zero' or 'strided'");
      return;
    }
    access.inner = static_cast<Inner>(inner);
    access.offset = rest("offset", 0);
    access.uniform = eatOnLine("uniform");
    access.transposed = eatOnLine("turned");
    access.repeat = static_cast<uint32_t>(rest("repeat", 1));
    kernel_.accesses.push_back(std::move(access));
  }

  bool eatOnLine(std::string_view word) { return !cursor_.lineEndsHere() && cursor_.eatWord(word); }
  int64_t rest(std::string_view name, int64_t otherwise) {
    if (!eatOnLine(name)) {
      return otherwise;
    }
    cursor_.expect('=');
    return cursor_.integer(-kMostNumber, kMostNumber);
  }

  void op() {
    const size_t at = cursor_.here();
    if (cursor_.integer() != static_cast<int64_t>(kernel_.ops.size())) {
      cursor_.failAt(at, "expected number " + std::to_string(kernel_.ops.size()));
    }
    cursor_.expect('=');
    KernelOp op;
    ir::Cursor::Number number;
    head(op, number);
    if (cursor_.eat('(')) {
      do {
        op.args.push_back(this->number());
        if (op.args.back() >= kernel_.ops.size()) {
          cursor_.fail("there is no such op before");
        }
      } while (!cursor_.failed() && cursor_.eat(','));
      cursor_.expect(')');
    }
    op.elem = readElem(cursor_);
    if (op.kind == KernelOpKind::kConst) {
      op.number = isFloat(op.elem) ? number.f : 0;
      op.integer = isFloat(op.elem) ? 0 : number.i;
      if (number.isFloat != isFloat(op.elem)) {
        cursor_.failAt(at, "the number is of another type");
      }
    }
    while (!cursor_.failed() && !cursor_.lineEndsHere()) {
      if (!readPlaces(cursor_, op.bounds, op.indexed)) {
        cursor_.fail("expected 'bounds' or 'take'");
      }
    }
    kernel_.ops.push_back(std::move(op));
  }

  void head(KernelOp& op, ir::Cursor::Number& constant) {
    const size_t at = cursor_.here();
    const std::string_view word = cursor_.word();
    if (word == "load") {
      op.kind = KernelOpKind::kLoad;
      op.access = number();
    } else if (word == "const") {
      op.kind = KernelOpKind::kConst;
      constant = cursor_.number();
    } else if (word == "product") {
      op.kind = KernelOpKind::kProduct;
    } else if (word == "score") {
      op.kind = KernelOpKind::kScore;
    } else if (const Core core = coreOf(word); core != Core::kCount) {
      op.kind = isReduce(core) ? KernelOpKind::kReduce : KernelOpKind::kPoint;
      op.op = core;
    } else {
      cursor_.failAt(at, "expected 'load', 'const', 'product', 'score' or an operation");
    }
  }

  void checkNumbers() {
    bool known = true;
    for (const KernelOp& op : kernel_.ops) {
      known = known && (op.kind != KernelOpKind::kLoad || op.access < kernel_.accesses.size());
    }
    for (const KernelStore& store : kernel_.stores) {
      known = known && store.op < kernel_.ops.size() && store.access < kernel_.accesses.size();
    }
    if (kernel_.product) {
      known = known && std::max(kernel_.product->left, kernel_.product->right) < kernel_.accesses.size();
    }
    if (!cursor_.failed() && !known) {
      cursor_.fail("the kernel names an op or an access that it does not have");
    }
  }

  ir::Cursor& cursor_;
  Kernel kernel_;
};

}  // namespace

void appendKernel(std::string& out, const Kernel& kernel, const std::string& indent) {
  out += "kernel";
  for (const FlagRow& row : kFlags) {
    out += kernel.*row.flag ? " " + std::string(row.name) : "";
  }
  const std::string line = "\n" + indent + "  ";
  out += " {" + line + "over ";
  appendSizes(out, kernel.sizes);
  if (kernel.product) {
    appendProduct(out += line, *kernel.product);
  }
  if (kernel.attention) {
    appendAttention(out += line, *kernel.attention);
  }
  for (const KernelAccess& access : kernel.accesses) {
    appendAccess(out += line, access);
  }
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    appendOp(out += line + std::to_string(i) + " = ", kernel.ops[i]);
  }
  for (const KernelStore& store : kernel.stores) {
    out += line + "store " + std::to_string(store.op) + " to " + std::to_string(store.access);
  }
  out += "\n" + indent + "}";
}

Kernel readKernel(ir::Cursor& cursor) { return Reader(cursor).read(); }

void appendElem(std::string& out, Elem elem) { out += elemName(elem); }

Elem readElem(ir::Cursor& cursor) {
  const size_t at = cursor.here();
  const std::string_view word = cursor.word();
  const Elem elem = elemOf(word);
  if (elemName(elem) != word) {
    cursor.failAt(at, "expected a type of elements");
  }
  return elem;
}

void appendPlaces(std::string& out, const std::vector<PartBound>& bounds, const IndexedDim& indexed) {
  for (size_t k = 0; k < bounds.size(); ++k) {
    out += (k == 0 ? " bounds=[" : ",") + std::to_string(bounds[k].dim) + ":" +
           std::to_string(bounds[k].low) + ":" + std::to_string(bounds[k].high);
  }
  out += bounds.empty() ? "" : "]";
  if (indexed != IndexedDim{}) {
    out += " take=" + std::to_string(indexed.step) + ":" + std::to_string(indexed.count) +
           (indexed.wraps ? ":wraps" : "");
  }
}

bool readPlaces(ir::Cursor& cursor, std::vector<PartBound>& bounds, IndexedDim& indexed) {
  if (cursor.eatWord("bounds")) {
    cursor.expect('=');
    cursor.expect('[');
    do {
      PartBound bound;
      bound.dim = static_cast<uint32_t>(cursor.integer(0, kMostNumber));
      cursor.expect(':');
      bound.low = cursor.integer();
      cursor.expect(':');
      bound.high = cursor.integer();
      bounds.push_back(bound);
    } while (!cursor.failed() && cursor.eat(','));
    cursor.expect(']');
    return true;
  }
  if (cursor.eatWord("take")) {
    cursor.expect('=');
    indexed.step = cursor.integer();
    cursor.expect(':');
    indexed.count = cursor.integer();
    indexed.wraps = cursor.eat(':');
    if (indexed.wraps) {
      cursor.expectWord("wraps");
    }
    return true;
  }
  return false;
}

Core coreOf(std::string_view text) {
  size_t at = 0;
  while (at < static_cast<size_t>(Core::kCount) && coreInfo(static_cast<Core>(at)).text != text) {
    ++at;
  }
  return static_cast<Core>(at);
}

}  // namespace kintsugi::passes
