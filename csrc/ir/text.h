// The lexical level of the IR's text form, shared by the printers and parsers of traces and of guards.
//
// Strings are quoted with escapes (`\" \\ \n \r \t \xNN`; valid UTF-8 stays as it is), floats are the
// shortest text that reads back to the same bits, `;` starts a comment that runs to the end of the line. A
// Cursor never throws and never aborts: the first error is kept with its line and column, and the cursor
// jumps to the end of the text, so that every loop over the input ends by itself.
//
// Ownership: a Cursor borrows the text. Threads: none shared. No GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "diag/diagnostic.h"

namespace kintsugi::ir {

void appendQuoted(std::string& out, std::string_view text);
void appendInt(std::string& out, int64_t number);
void appendFloat(std::string& out, double number);
// `prefix` and the number, or `none` for kNone: `%3`, `#none`.
void appendId(std::string& out, char prefix, uint32_t id);
// Bare when `isPlain` accepts every character (and there is one), else quoted.
void appendName(std::string& out, std::string_view text, bool (*isPlain)(char));

bool isWordChar(char c);      // letters, digits, _ .
bool isFileChar(char c);      // also / + - < >
bool isFunctionChar(char c);  // letters, digits, _ . < >
bool isDeviceChar(char c);    // letters, digits, _ . :

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Every reader first skips blanks, ends of lines and comments, except those named `...Here`.
  bool atEnd() const;
  bool peek(char c) const;
  bool peekQuote() const { return peek('"'); }
  bool eat(char c);                     // takes c when it is next
  bool eatWord(std::string_view word);  // takes the whole word when it is next
  void expect(char c);                  // fails when it is not next
  void expectWord(std::string_view word);
  // Nothing but blanks and a comment before the end of the line (or of the text, or a closing brace)?
  bool lineEndsHere() const;

  std::string_view word();                       // the longest run of word characters; may be empty
  std::string_view name(bool (*accepts)(char));  // a run of such characters; fails when empty
  std::string nameOrString(bool (*accepts)(char));
  std::string string();
  int64_t integer();
  int64_t integer(int64_t low, int64_t high);
  uint32_t id(char prefix);  // `%3`; `%none` is kNone
  bool peekNumber() const;   // a digit or a sign follows
  // An integer or, with a point, an exponent or by name (inf, nan), a float.
  struct Number {
    bool isFloat = false;
    int64_t i = 0;
    double f = 0;
  };
  Number number();

  size_t position() const { return position_; }
  size_t here() const { return skipFrom(position_); }  // position of the next token
  bool failed() const { return failed_; }
  void fail(const std::string& message) { failAt(here(), message); }
  void failAt(size_t position, const std::string& message);
  // KTG0001 with line and column, once failed().
  diag::Diagnostic diagnostic() const;

 private:
  size_t skipFrom(size_t at) const;
  void skip() { position_ = skipFrom(position_); }
  char next() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool readEscape(std::string& out);
  bool readNan(bool negative, Number& number);

  std::string_view text_;
  size_t position_ = 0;
  bool failed_ = false;
  size_t errorLine_ = 0;
  size_t errorColumn_ = 0;
  std::string message_;
};

}  // namespace kintsugi::ir
