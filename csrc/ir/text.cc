#include "ir/text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "ir/types.h"

namespace kintsugi::ir {

namespace {

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kNumberChars = ".e+-";
constexpr uint64_t kQuietNan = 0x7ff8000000000000ull;
constexpr uint64_t kSignBit = 0x8000000000000000ull;

bool isAlnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool isDigit(char c) { return c >= '0' && c <= '9'; }

unsigned byteAt(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
}

// Length of the valid multi-byte UTF-8 sequence at `i`, or 0. Overlong forms and surrogates are not valid.
size_t utf8Length(std::string_view text, size_t i) {
  const unsigned lead = byteAt(text, i);
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || lead > 0xf4) {
    return 0;
  }
  unsigned code = lead & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) {
    const unsigned byte = byteAt(text, i + k);
    if ((byte & 0xc0u) != 0x80u) {
      return 0;
    }
    code = (code << 6) | (byte & 0x3fu);
  }
  const unsigned least = length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u;
  const bool surrogate = code >= 0xd800u && code <= 0xdfffu;
  return code < least || code > 0x10ffffu || surrogate ? 0 : length;
}

int hexValue(char c) {
  const size_t at = kHex.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

bool isWordChar(char c) { return isAlnum(c) || c == '_' || c == '.'; }
bool isFileChar(char c) { return isWordChar(c) || c == '/' || c == '+' || c == '-' || c == '<' || c == '>'; }
bool isFunctionChar(char c) { return isWordChar(c) || c == '<' || c == '>'; }
bool isDeviceChar(char c) { return isWordChar(c) || c == ':'; }

void appendQuoted(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += '\\';
      out += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    } else if (const size_t length = utf8Length(text, i); length != 0) {
      out += text.substr(i, length);
      i += length - 1;
    } else if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out += '"';
}

void appendInt(std::string& out, int64_t number) {
  std::array<char, 24> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  out.append(buffer.data(), end);
}

void appendFloat(std::string& out, double number) {
  const auto bits = std::bit_cast<uint64_t>(number);
  if ((bits & kSignBit) != 0) {
    out += '-';
  }
  if (std::isnan(number)) {
    out += "nan";
    if (const uint64_t payload = bits & ~kSignBit; payload != kQuietNan) {
      std::array<char, 20> buffer;
      const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), payload, 16).ptr;
      out += ":0x";
      out.append(buffer.data(), end);
    }
    return;
  }
  if (std::isinf(number)) {
    out += "inf";
    return;
  }
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(number)).ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) {
    out += ".0";
  }
}

void appendId(std::string& out, char prefix, uint32_t id) {
  out += prefix;
  if (id == kNone) {
    out += "none";
  } else {
    appendInt(out, id);
  }
}

void appendName(std::string& out, std::string_view text, bool (*isPlain)(char)) {
  bool plain = !text.empty();
  for (const char c : text) {
    plain = plain && isPlain(c);
  }
  if (plain) {
    out += text;
  } else {
    appendQuoted(out, text);
  }
}

size_t Cursor::skipFrom(size_t at) const {
  for (; at < text_.size(); ++at) {
    const char c = text_[at];
    if (c == ';') {
      at = std::min(text_.find('\n', at), text_.size() - 1);
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      break;
    }
  }
  return at;
}

bool Cursor::atEnd() const { return here() >= text_.size(); }

bool Cursor::peek(char c) const {
  const size_t at = here();
  return at < text_.size() && text_[at] == c;
}

// What is not taken must not move the cursor to another line: ends of lines mean something.
bool Cursor::eat(char c) {
  if (!peek(c)) {
    return false;
  }
  skip();
  ++position_;
  return true;
}

bool Cursor::eatWord(std::string_view expected) {
  const size_t before = position_;
  if (word() == expected) {
    return true;
  }
  position_ = failed_ ? text_.size() : before;
  return false;
}

void Cursor::expect(char c) {
  if (!eat(c)) {
    fail(std::string("expected '") + c + "'");
  }
}

void Cursor::expectWord(std::string_view expected) {
  if (!eatWord(expected)) {
    fail("expected '" + std::string(expected) + "'");
  }
}

bool Cursor::lineEndsHere() const {
  size_t at = position_;
  while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t' || text_[at] == '\r')) {
    ++at;
  }
  return at >= text_.size() || text_[at] == '\n' || text_[at] == ';' || text_[at] == '}';
}

std::string_view Cursor::word() {
  skip();
  const size_t first = position_;
  while (position_ < text_.size() && isWordChar(text_[position_])) {
    ++position_;
  }
  return text_.substr(first, position_ - first);
}

std::string_view Cursor::name(bool (*accepts)(char)) {
  skip();
  const size_t first = position_;
  while (position_ < text_.size() && accepts(text_[position_])) {
    ++position_;
  }
  if (first == position_) {
    fail("expected a name");
  }
  return text_.substr(first, failed_ ? 0 : position_ - first);
}

std::string Cursor::nameOrString(bool (*accepts)(char)) {
  return peekQuote() ? string() : std::string(name(accepts));
}

bool Cursor::readEscape(std::string& out) {
  const char c = next();
  ++position_;
  switch (c) {
    case '"':
    case '\\':
      out += c;
      return true;
    case 'n':
      out += '\n';
      return true;
    case 'r':
      out += '\r';
      return true;
    case 't':
      out += '\t';
      return true;
    case 'x': {
      const int high = hexValue(next());
      const int low = position_ + 1 < text_.size() ? hexValue(text_[position_ + 1]) : -1;
      if (high < 0 || low < 0) {
        return false;
      }
      out += static_cast<char>(high * 16 + low);
      position_ += 2;
      return true;
    }
    default:
      return false;
  }
}

std::string Cursor::string() {
  std::string out;
  const size_t first = here();
  if (!eat('"')) {
    fail("expected a string");
    return out;
  }
  while (position_ < text_.size() && next() != '"' && next() != '\n') {
    const char c = text_[position_++];
    if (c != '\\') {
      out += c;
    } else if (const size_t escape = position_ - 1; !readEscape(out)) {
      failAt(escape, "unknown escape in a string");
      return {};
    }
  }
  if (next() != '"') {
    failAt(first, "the string does not end");
    return {};
  }
  ++position_;
  return out;
}

int64_t Cursor::integer() {
  int64_t number = 0;
  skip();
  const size_t first = position_;
  const auto [end, error] = std::from_chars(text_.data() + first, text_.data() + text_.size(), number);
  if (error == std::errc::result_out_of_range) {
    fail("the number does not fit into 64 bits");
    return 0;
  }
  if (error != std::errc()) {
    fail("expected a whole number");
    return 0;
  }
  position_ = static_cast<size_t>(end - text_.data());
  return number;
}

int64_t Cursor::integer(int64_t low, int64_t high) {
  const size_t first = here();
  const int64_t number = integer();
  if (!failed_ && (number < low || number > high)) {
    failAt(first, "the number is not between " + std::to_string(low) + " and " + std::to_string(high));
    return low;
  }
  return number;
}

uint32_t Cursor::id(char prefix) {
  expect(prefix);
  if (failed_) {
    return kNone;
  }
  if (next() == 'n') {
    expectWord("none");
    return kNone;
  }
  if (!isDigit(next())) {
    fail(std::string("expected a number after '") + prefix + "'");
    return kNone;
  }
  return static_cast<uint32_t>(integer(0, kNone - 1));
}

bool Cursor::peekNumber() const {
  const size_t at = here();
  if (at >= text_.size()) {
    return false;
  }
  const std::string_view rest = text_.substr(at);
  return isDigit(rest[0]) || rest[0] == '-' || rest.starts_with("inf") || rest.starts_with("nan");
}

bool Cursor::readNan(bool negative, Number& number) {
  if (!text_.substr(position_).starts_with("nan")) {
    return false;
  }
  position_ += 3;
  uint64_t bits = kQuietNan;
  if (text_.substr(position_).starts_with(":0x")) {
    position_ += 3;
    const auto [end, error] =
        std::from_chars(text_.data() + position_, text_.data() + text_.size(), bits, 16);
    if (error != std::errc() || !std::isnan(std::bit_cast<double>(bits)) || (bits & kSignBit) != 0) {
      fail("expected the bits of a nan");
      return true;
    }
    position_ = static_cast<size_t>(end - text_.data());
  }
  number.f = std::bit_cast<double>(bits | (negative ? kSignBit : 0));
  return true;
}

Cursor::Number Cursor::number() {
  Number number;
  skip();
  const size_t first = position_;
  const bool negative = next() == '-';
  size_t end = first + (negative ? 1 : 0);
  const std::string_view unsignedPart = text_.substr(end);
  if (unsignedPart.starts_with("inf") || unsignedPart.starts_with("nan")) {
    number.isFloat = true;
    position_ = end;
    if (!readNan(negative, number)) {
      position_ += 3;
      number.f = negative ? -HUGE_VAL : HUGE_VAL;
    }
    return number;
  }
  bool integral = true;
  while (end < text_.size() &&
         (isDigit(text_[end]) || kNumberChars.find(text_[end]) != std::string_view::npos)) {
    integral = integral && isDigit(text_[end]);
    ++end;
  }
  if (integral) {
    number.i = integer();
    return number;
  }
  number.isFloat = true;
  const auto [stop, error] = std::from_chars(text_.data() + first, text_.data() + end, number.f);
  if (error != std::errc() || stop != text_.data() + end) {
    fail("expected a number");
    return number;
  }
  position_ = end;
  return number;
}

void Cursor::failAt(size_t position, const std::string& message) {
  if (!failed_) {
    failed_ = true;
    message_ = message;
    errorLine_ = 1;
    size_t lineStart = 0;
    for (size_t i = 0; i < position && i < text_.size(); ++i) {
      if (text_[i] == '\n') {
        ++errorLine_;
        lineStart = i + 1;
      }
    }
    errorColumn_ = position - lineStart + 1;
  }
  position_ = text_.size();
}

diag::Diagnostic Cursor::diagnostic() const {
  return diag::Diagnostic(diag::Code::KTG0001,
                          {std::to_string(errorLine_), std::to_string(errorColumn_), message_});
}

}  // namespace kintsugi::ir
