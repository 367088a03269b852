#include "guard/document.h"

#include <algorithm>
#include <limits>

#include "guard/kinds.h"
#include "ir/equal.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/text.h"

namespace kintsugi::guard {

namespace {

using ir::appendId;
using ir::appendInt;
using ir::appendQuoted;
using ir::Cursor;

// A path may hold anything that a constant's description holds; a comment must end with its line.
void appendComment(std::string& out, std::string_view text) {
  out += "  ; ";
  for (const char c : text) {
    out += c >= ' ' && c <= '~' ? c : '?';
  }
}

void printSource(std::string& out, const Document& document, SourceId id) {
  const SourceNode& node = document.sources.nodes[id];
  const KindInfo& info = kindInfo(node.kind);
  out += "  ";
  appendId(out, '$', id);
  out += " = ";
  out += info.text;
  for (const char part : info.parts) {
    out += ' ';
    if (part == 'p') {
      appendId(out, '$', node.parent);
    } else if (part == 'k') {
      appendId(out, '#', node.key);
    } else if (part == 'v') {
      appendId(out, '%', static_cast<uint32_t>(node.index));
    } else {
      appendInt(out, node.index);
    }
  }
  if (node.block != 0) {
    out += " block=";
    appendInt(out, node.block);
  }
  appendComment(out, document.sources.path(id, document.trace.constTexts));
  out += '\n';
}

void printSources(std::string& out, const Document& document) {
  const std::vector<std::string>& names = document.sources.argNames;
  if (names.empty() && document.sources.nodes.empty()) {
    return;
  }
  out += "sources {\n";
  for (size_t i = 0; i < names.size(); ++i) {
    out += i == 0 ? "  args " : ", ";
    appendQuoted(out, names[i]);
  }
  out += names.empty() ? "" : "\n";
  for (size_t i = 0; i < document.sources.nodes.size(); ++i) {
    printSource(out, document, static_cast<SourceId>(i));
  }
  out += "}\n";
}

void printGuard(std::string& out, const Guard& guard) {
  const KindInfo& info = kindInfo(guard.kind);
  out += "  ";
  out += info.text;
  for (const char part : info.parts) {
    out += ' ';
    if (part == 's') {
      appendId(out, '$', guard.source);
    } else if (part == 't') {
      appendId(out, '$', guard.other);
    } else if (part == 'k') {
      appendId(out, '#', guard.key);
    } else {
      appendInt(out, guard.number);
    }
  }
  out += '\n';
}

// One section for each run of guards of a block, and an empty one for each block that has no guard. The order
// of recording is kept whatever it is.
void printGuards(std::string& out, const GuardSet& set) {
  if (set.guards.empty() && set.blockCount <= 1) {
    return;
  }
  const auto open = [&out](BlockId block) {
    out += "guards ";
    appendInt(out, block);
    out += " {\n";
  };
  BlockId next = 0;  // the first block that no section has been opened for
  const auto openUpTo = [&](BlockId end) {
    for (; next < end; ++next) {
      open(next);
      out += "}\n";
    }
  };
  for (size_t i = 0; i < set.guards.size(); ++i) {
    const BlockId block = set.guards[i].block;
    if (i == 0 || set.guards[i - 1].block != block) {
      if (block < set.blockCount) {
        openUpTo(block);
      }
      open(block);
      next = std::max(next, block < set.blockCount ? block + 1 : next);
    }
    printGuard(out, set.guards[i]);
    if (i + 1 == set.guards.size() || set.guards[i + 1].block != block) {
      out += "}\n";
    }
  }
  openUpTo(set.blockCount);
}

class Reader {
 public:
  explicit Reader(Cursor& cursor) : cursor_(cursor) {}

  Document document() {
    if (cursor_.eatWord("sources")) {
      cursor_.expect('{');
      while (!cursor_.failed() && !cursor_.eat('}')) {
        sourceLine();
      }
    }
    document_.guards.blockCount = 0;
    while (cursor_.eatWord("guards")) {
      guards();
    }
    document_.guards.blockCount = std::max<BlockId>(document_.guards.blockCount, 1);
    document_.trace = ir::readTrace(cursor_);
    return std::move(document_);
  }

 private:
  void endLine() {
    if (!cursor_.lineEndsHere()) {
      cursor_.fail("expected the end of the line");
    }
  }

  void sourceLine() {
    if (cursor_.atEnd()) {
      cursor_.fail("the section does not end, expected '}'");
    } else if (cursor_.eatWord("args")) {
      do {
        document_.sources.argNames.push_back(cursor_.string());
      } while (cursor_.eat(','));
    } else {
      source();
    }
    endLine();
  }

  void source() {
    const size_t position = cursor_.here();
    if (cursor_.id('$') != document_.sources.nodes.size()) {
      cursor_.failAt(position, "expected number " + std::to_string(document_.sources.nodes.size()));
    }
    cursor_.expect('=');
    const size_t kindPosition = cursor_.here();
    const std::optional<SourceKind> kind = findSourceKind(cursor_.word());
    if (!kind.has_value()) {
      cursor_.failAt(kindPosition, "unknown kind of source");
      return;
    }
    SourceNode node;
    node.kind = *kind;
    for (const char part : kindInfo(*kind).parts) {
      if (part == 'p') {
        node.parent = cursor_.id('$');
      } else if (part == 'k') {
        node.key = cursor_.id('#');
      } else {
        node.index = part == 'v' ? cursor_.id('%') : cursor_.integer();
      }
    }
    if (!cursor_.lineEndsHere() && cursor_.eatWord("block")) {
      cursor_.expect('=');
      node.block = static_cast<BlockId>(cursor_.integer(0, ir::kNone - 1));
    }
    document_.sources.nodes.push_back(node);
  }

  void guards() {
    const size_t position = cursor_.here();
    const auto block = static_cast<BlockId>(cursor_.integer(0, ir::kNone - 1));
    GuardSet& set = document_.guards;
    // A block may be reopened, but none left out: printing gives an empty section to a block without guards.
    if (block > set.blockCount) {
      cursor_.failAt(position, "expected block " + std::to_string(set.blockCount) + " or an earlier one");
      return;
    }
    set.blockCount = std::max(set.blockCount, block + 1);
    cursor_.expect('{');
    while (!cursor_.failed() && !cursor_.eat('}')) {
      guard(block);
      endLine();
    }
  }

  void guard(BlockId block) {
    const size_t position = cursor_.here();
    const std::optional<GuardKind> kind = findGuardKind(cursor_.word());
    if (!kind.has_value()) {
      cursor_.failAt(position,
                     cursor_.atEnd() ? "the section does not end, expected '}'" : "unknown kind of guard");
      return;
    }
    Guard guard;
    guard.kind = *kind;
    guard.block = block;
    for (const char part : kindInfo(*kind).parts) {
      if (part == 's') {
        guard.source = cursor_.id('$');
      } else if (part == 't') {
        guard.other = cursor_.id('$');
      } else if (part == 'k') {
        guard.key = cursor_.id('#');
      } else {
        guard.number = cursor_.integer();
      }
    }
    document_.guards.guards.push_back(guard);
  }

  Cursor& cursor_;
  Document document_;
};

}  // namespace

std::string print(const Document& document) {
  std::string out;
  printSources(out, document);
  printGuards(out, document.guards);
  ir::printTo(out, document.trace);
  return out;
}

std::string print(const Document& document, const Guard& guard) {
  std::string out;
  printGuard(out, guard);
  const auto named = [&](SourceId id) { return document.sources.path(id, document.trace.constTexts); };
  out = out.substr(2, out.size() - 3);
  if (kindInfo(guard.kind).has('s')) {
    appendComment(out, named(guard.source));
  }
  return out;
}

diag::Result<Document> parse(std::string_view text) {
  Cursor cursor(text);
  Document document = Reader(cursor).document();
  if (!cursor.atEnd()) {
    cursor.fail("expected the end of the text");
  }
  if (cursor.failed()) {
    return cursor.diagnostic();
  }
  return document;
}

bool equal(const Document& a, const Document& b) {
  const auto sameSource = [](const SourceNode& x, const SourceNode& y) { return equal(x, y); };
  const auto sameGuard = [](const Guard& x, const Guard& y) { return equal(x, y); };
  return std::max<BlockId>(a.guards.blockCount, 1) == std::max<BlockId>(b.guards.blockCount, 1) &&
         a.sources.argNames == b.sources.argNames &&
         std::equal(a.sources.nodes.begin(), a.sources.nodes.end(), b.sources.nodes.begin(),
                    b.sources.nodes.end(), sameSource) &&
         std::equal(a.guards.guards.begin(), a.guards.guards.end(), b.guards.guards.begin(),
                    b.guards.guards.end(), sameGuard) &&
         ir::equal(a.trace, b.trace);
}

}  // namespace kintsugi::guard
