#include "passes/size_text.h"

#include <charconv>

namespace kintsugi::passes {

namespace {

// Products and sums of such numbers stay within 64 bits for a while.
constexpr int64_t kMostFactor = int64_t{1} << 40;
constexpr size_t kMostParts = 8;
constexpr size_t kMostSymbols = 1000;

uint32_t readSymbol(ir::Cursor& cursor) {
  const size_t at = cursor.here();
  const std::string_view word = cursor.word();
  uint32_t number = 0;
  const char* end = word.data() + word.size();
  const bool named =
      word.size() > 1 && word[0] == 's' && std::from_chars(word.data() + 1, end, number).ptr == end;
  if (!named || number >= sizeTable().symbolCount()) {
    cursor.failAt(at, "expected a size: a number or a symbol that has a row");
    return 0;
  }
  return number;
}

SizeTerm readTerm(ir::Cursor& cursor, bool negative) {
  SizeTerm term;
  term.factor = 1;
  bool more = true;
  if (cursor.peekNumber()) {
    term.factor = cursor.integer(0, kMostFactor);
    more = cursor.eat('*');
  }
  for (; more && !cursor.failed(); more = cursor.eat('*')) {
    term.symbols.push_back(readSymbol(cursor));
    if (term.symbols.size() > kMostParts) {
      cursor.fail("the product has too many factors");
    }
  }
  term.factor = negative ? -term.factor : term.factor;
  return term;
}

SizeSum readSum(ir::Cursor& cursor) {
  SizeSum sum = {readTerm(cursor, cursor.eat('-'))};
  while (!cursor.failed() && (cursor.peek('+') || cursor.peek('-'))) {
    const bool negative = cursor.eat('-');
    if (!negative) {
      cursor.expect('+');
    }
    sum.push_back(readTerm(cursor, negative));
    if (sum.size() > kMostParts) {
      cursor.fail("the sum has too many terms");
    }
  }
  return sum;
}

void readCheck(ir::Cursor& cursor) {
  const size_t at = cursor.here();
  const SizeSum difference = readSum(cursor);
  uint8_t signs = 0;
  signs |= cursor.eat('<') ? kLess : 0;
  signs |= cursor.eat('>') ? kMore : 0;
  signs |= cursor.eat('=') ? kZero : 0;
  cursor.integer(0, 0);
  if (cursor.failed()) {
    return;
  }
  if (signs == 0 || !sizeTable().require(sizeTable().make(SizeTable::normalized(difference)), 0, signs)) {
    cursor.failAt(at, "does not hold for the sizes as they were seen");
  }
}

}  // namespace

void appendSizes(std::string& out, const std::vector<Size>& sizes) {
  out += '[';
  for (size_t i = 0; i < sizes.size(); ++i) {
    out += (i == 0 ? "" : ",") + textOf(sizes[i]);
  }
  out += ']';
}

Size readSize(ir::Cursor& cursor) {
  const SizeSum sum = readSum(cursor);
  return cursor.failed() ? Size() : sizeTable().make(SizeTable::normalized(sum));
}

std::vector<Size> readSizes(ir::Cursor& cursor) {
  std::vector<Size> sizes;
  cursor.expect('[');
  if (cursor.eat(']')) {
    return sizes;
  }
  do {
    sizes.push_back(readSize(cursor));
  } while (!cursor.failed() && cursor.eat(','));
  cursor.expect(']');
  return sizes;
}

void appendSizeRows(std::string& out, const SizeTable& table, std::string_view indent) {
  for (uint32_t symbol = 0; symbol < table.symbolCount(); ++symbol) {
    out += std::string(indent) + (table.isSize(symbol) ? "size s" : "stride s") + std::to_string(symbol) +
           " = " + std::to_string(table.hint(symbol)) + "\n";
  }
  for (const SizeCheck& check : table.checks()) {
    out += std::string(indent) + "require " + SizeTable::text(check.difference) + " ";
    out += (check.signs & kLess) != 0 ? "<" : "";
    out += (check.signs & kMore) != 0 ? ">" : "";
    out += (check.signs & kZero) != 0 ? "= 0\n" : " 0\n";
  }
}

bool readSizeRow(ir::Cursor& cursor) {
  if (cursor.eatWord("require")) {
    readCheck(cursor);
    return true;
  }
  const bool size = cursor.eatWord("size");
  if (!size && !cursor.eatWord("stride")) {
    return false;
  }
  const size_t at = cursor.here();
  if (cursor.word() != "s" + std::to_string(sizeTable().symbolCount()) ||
      sizeTable().symbolCount() >= kMostSymbols) {
    cursor.failAt(at, "expected the symbol s" + std::to_string(sizeTable().symbolCount()));
  }
  cursor.expect('=');
  const int64_t hint = cursor.integer(-kMostFactor, kMostFactor);
  if (!cursor.failed()) {
    sizeTable().symbol(hint, size);
  }
  return true;
}

}  // namespace kintsugi::passes
