#include <iterator>
#include <limits>
#include <memory>

#include "ir/parser.h"
#include "passes/graph_text.h"
#include "passes/kernel_text.h"
#include "passes/node_flags.h"
#include "passes/size_text.h"

namespace kintsugi::passes {

namespace {

constexpr int64_t kMostNumber = std::numeric_limits<int32_t>::max();

class Reader {
 public:
  Reader(ir::Cursor& cursor, const ir::Trace& segment) : cursor_(cursor), segment_(segment) {}

  TensorGraph graph() {
    cursor_.expectWord("graph");
    cursor_.expect('{');
    while (!cursor_.failed() && !cursor_.eat('}')) {
      row();
      if (!cursor_.lineEndsHere()) {
        cursor_.fail("expected the end of the line");
      }
    }
    return std::move(graph_);
  }

 private:
  void row() {
    if (cursor_.atEnd()) {
      cursor_.fail("the graph does not end, expected '}'");
    } else if (cursor_.peek('%')) {
      node();
    } else if (cursor_.eatWord("inputs")) {
      graph_.inputs = ids();
    } else if (cursor_.eatWord("outputs")) {
      graph_.outputs = ids();
    } else if (cursor_.eatWord("write")) {
      graph_.writes.push_back(write());
    } else if (cursor_.eatWord("written")) {
      cursor_.expectWord("input");
      const uint32_t input = number();
      graph_.written.emplace_back(input, keyed("times"));
    } else if (cursor_.eatWord("instructions")) {
      graph_.instructions = number();
    } else if (!readSizeRow(cursor_)) {
      cursor_.fail("expected a node, 'inputs', 'outputs', 'write', 'written', 'instructions' or a size");
    }
  }

  uint32_t number() { return static_cast<uint32_t>(cursor_.integer(0, kMostNumber)); }
  uint32_t keyed(std::string_view name) {
    cursor_.expectWord(name);
    cursor_.expect('=');
    return number();
  }

  NodeId idOrNone() {
    if (cursor_.eatWord("none")) {
      return ir::kNone;
    }
    return cursor_.id('%');
  }
  std::vector<NodeId> ids() {
    std::vector<NodeId> out;
    if (!cursor_.lineEndsHere()) {
      do {
        out.push_back(idOrNone());
      } while (!cursor_.failed() && cursor_.eat(','));
    }
    return out;
  }

  Write write() {
    Write write;
    cursor_.expectWord("input");
    write.input = number();
    write.elem = readElem(cursor_);
    write.sizes = readSizes(cursor_);
    cursor_.expectWord("strides");
    cursor_.expect('=');
    write.strides = readSizes(cursor_);
    if (!cursor_.lineEndsHere() && cursor_.eatWord("offset")) {
      cursor_.expect('=');
      write.offset = cursor_.integer();
    }
    return write;
  }

  void node() {
    const size_t at = cursor_.here();
    if (cursor_.id('%') != graph_.nodes.size()) {
      cursor_.failAt(at, "expected node %" + std::to_string(graph_.nodes.size()));
    }
    cursor_.expect('=');
    Node node;
    callName_.clear();
    head(node);
    if (cursor_.eat('(')) {
      do {
        node.args.push_back(cursor_.id('%'));
      } while (!cursor_.failed() && cursor_.eat(','));
      cursor_.expect(')');
    }
    type(node);
    bool strides = false;
    while (!cursor_.failed() && !cursor_.lineEndsHere()) {
      attribute(node, strides);
    }
    const bool hasMemory = node.kind != NodeKind::kConst && node.kind != NodeKind::kCall;
    if (hasMemory && !strides && !cursor_.failed()) {
      node.strides = contiguousStrides(node.sizes);
    }
    checkCall(node, at);
    graph_.nodes.push_back(std::move(node));
  }

  void head(Node& node) {
    struct Row {
      std::string_view name;
      NodeKind kind;
      bool numbered = false;  // `join 1`, `result 0`
    };
    static constexpr Row kRows[] = {
        {"input", NodeKind::kInput},         {"const", NodeKind::kConst},
        {"product", NodeKind::kProduct},     {"product.rows", NodeKind::kProduct},
        {"attention", NodeKind::kAttention}, {"view", NodeKind::kView},
        {"join", NodeKind::kJoin, true},     {"join.stacked", NodeKind::kJoin, true},
        {"call", NodeKind::kCall},           {"result", NodeKind::kResult, true},
    };
    const size_t at = cursor_.here();
    const std::string_view word = cursor_.word();
    if (const Core core = coreOf(word); core != Core::kCount) {
      node.kind = isReduce(core) ? NodeKind::kReduce : NodeKind::kPoint;
      node.op = core;
      return;
    }
    const Row* row = std::begin(kRows);
    while (row != std::end(kRows) && row->name != word) {
      ++row;
    }
    if (row == std::end(kRows)) {
      cursor_.failAt(at, "there is no such operation");
      return;
    }
    node.kind = row->kind;
    node.byRows = word == "product.rows";
    node.stacked = word == "join.stacked";
    if (row->numbered) {
      (node.kind == NodeKind::kJoin ? node.dim : node.result) = number();
    } else if (node.kind == NodeKind::kConst) {
      constant_ = cursor_.number();
    } else if (node.kind == NodeKind::kCall) {
      callName_ = cursor_.nameOrString(ir::isWordChar);
    }
  }

  void type(Node& node) {
    if (node.kind == NodeKind::kCall) {
      return;
    }
    const size_t at = cursor_.here();
    node.elem = readElem(cursor_);
    if (node.kind != NodeKind::kConst) {
      node.sizes = readSizes(cursor_);
    } else if (constant_.isFloat != isFloat(node.elem)) {
      cursor_.failAt(at, "the number is of another type");
    } else {
      node.number = constant_.isFloat ? constant_.f : 0;
      node.integer = constant_.isFloat ? 0 : constant_.i;
    }
  }

  void attribute(Node& node, bool& strides) {
    struct Row {
      std::string_view name;
      uint32_t Node::*number;
    };
    static constexpr Row kRows[] = {{"last", &Node::reduced},
                                    {"trailing", &Node::trailing},
                                    {"at", &Node::instruction},
                                    {"result", &Node::result},
                                    {"value", &Node::value}};
    if (cursor_.peek('k') && node.kind == NodeKind::kAttention) {
      node.attention = std::make_shared<const Kernel>(readKernel(cursor_));
      return;
    }
    if (readPlaces(cursor_, node.bounds, node.indexed)) {
      return;
    }
    const size_t at = cursor_.here();
    const std::string_view word = cursor_.word();
    for (const NodeFlag& row : kNodeFlags) {
      if (row.name == word) {
        node.*row.flag = true;
        return;
      }
    }
    if (word == "in") {
      node.home = cursor_.id('%');
      return;
    }
    if (!cursor_.peek('=')) {
      cursor_.failAt(at, "there is no such attribute");
    }
    cursor_.expect('=');
    for (const Row& row : kRows) {
      if (row.name == word) {
        node.*row.number = number();
        return;
      }
    }
    if (word == "strides") {
      strides = true;
      node.strides = readSizes(cursor_);
    } else if (word == "sizes") {
      node.sizes = readSizes(cursor_);
    } else if (word == "offset") {
      node.offset = cursor_.integer();
    } else if (word == "largest") {
      const ir::Cursor::Number most = cursor_.number();
      node.largest = most.isFloat ? most.f : static_cast<double>(most.i);
    } else {
      cursor_.failAt(at, "there is no such attribute");
    }
  }

  // A call names its instruction twice: by number, and for people.
  void checkCall(const Node& node, size_t at) {
    if (cursor_.failed() || node.kind != NodeKind::kCall) {
      return;
    }
    if (node.instruction >= segment_.code.size()) {
      cursor_.failAt(at, "the segment has no such instruction");
    } else if (callName(segment_, segment_.code[node.instruction]) != callName_) {
      cursor_.failAt(at, "the instruction calls something else");
    }
  }

  ir::Cursor& cursor_;
  const ir::Trace& segment_;
  TensorGraph graph_;
  ir::Cursor::Number constant_;
  std::string callName_;
};

}  // namespace

diag::Result<GraphDocument> parseGraph(std::string_view text) {
  ir::Cursor cursor(text);
  GraphDocument document;
  if (ir::Cursor ahead = cursor; ahead.eatWord("trace")) {
    document.segment = ir::readTrace(cursor);
  }
  document.graph = Reader(cursor, document.segment).graph();
  if (!cursor.failed() && !cursor.atEnd()) {
    cursor.fail("expected the end of the text");
  }
  if (cursor.failed()) {
    return cursor.diagnostic();
  }
  return document;
}

}  // namespace kintsugi::passes
