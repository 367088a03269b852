// Sizes of the tensor graph: numbers, or expressions over sizes that are known only at run time.
//
// Idea: a size that varies is a symbol. Sizes and strides computed from symbols are polynomials in a normal
// form, so two of them are equal for all values of the symbols exactly if their forms are. `==` means that:
// provably equal. An equation that a segment needs and that can't be proved (two symbols were equal while
// recording) is *required*: it becomes a check of each run, and the later symbol is replaced by the earlier
// expression from there on. Symbols are at least 2; sizes of 0 and 1 are numbers, since tensors broadcast by
// them, and each run checks that too. Every size has a hint, its value while recording, which may decide
// between ways that are all right, but never what is right.
//
//   s0 * 4 == 4 * s0          true: one normal form
//   sizes.require(s0, s1)     each run checks it; s1 means s0 from here on
//
// Ownership: a Size is a number into the SizeTable that is in scope. Threads: one table, one thread. GIL: not
// needed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kintsugi::passes {

struct Size {
  int64_t hint = 0;
  uint32_t expr = 0;  // into the table; 0: it is always the number

  Size() = default;
  Size(int64_t number) : hint(number) {}  // NOLINT: numbers are sizes
  bool fixed() const { return expr == 0; }
};

// A sum of products of symbols. Terms are in order; the constant one has no symbols.
struct SizeTerm {
  std::vector<uint32_t> symbols;  // in order
  int64_t factor = 0;
  bool operator==(const SizeTerm&) const = default;
  auto operator<=>(const SizeTerm&) const = default;
};
using SizeSum = std::vector<SizeTerm>;

// Which signs a difference may have, as bits.
enum SizeSign : uint8_t { kLess = 1, kZero = 2, kMore = 4 };

struct SizeCheck {
  SizeSum difference;
  uint8_t signs = kZero;
};

class SizeTable {
 public:
  SizeTable();

  // `isSize`: at least 2; else a stride, which may be any number.
  Size symbol(int64_t hint, bool isSize);
  uint32_t symbolOf(Size symbol) const;  // of one made by symbol()
  Size make(const SizeSum& sum);
  SizeSum sumOf(Size size) const;  // in terms of the earliest symbols
  bool surelyEqual(Size a, Size b) const { return sumOf(a) == sumOf(b); }
  // From here on a - b has one of the signs; each run checks it. False: it had another one while recording.
  bool require(Size a, Size b, uint8_t signs);

  const std::vector<SizeCheck>& checks() const { return checks_; }
  // In terms of the earliest symbols.
  SizeSum reduced(const SizeSum& sum) const;
  static std::string text(const SizeSum& sum);
  // In order, equal products joined, zeros gone.
  static SizeSum normalized(SizeSum sum);

  size_t symbolCount() const { return symbols_.size(); }
  int64_t hint(uint32_t symbol) const { return symbols_[symbol].hint; }
  bool isSize(uint32_t symbol) const { return symbols_[symbol].isSize; }

 private:
  struct Symbol {
    int64_t hint = 0;
    bool isSize = true;
    bool replaced = false;
    SizeSum by;  // of earlier symbols
  };
  uint8_t possibleSigns(const SizeSum& difference) const;
  void replace(const SizeSum& zero);
  int64_t hintOf(const SizeSum& sum) const;

  std::vector<Symbol> symbols_;
  std::vector<SizeSum> exprs_;
  std::map<SizeSum, uint32_t> index_;
  std::vector<SizeCheck> checks_;
};

// The table of this thread while the scope lasts. Without one all sizes are numbers.
class SizeScope {
 public:
  explicit SizeScope(SizeTable& table);
  ~SizeScope();
  SizeScope(const SizeScope&) = delete;

 private:
  SizeTable* before_;
};
SizeTable& sizeTable();

Size operator+(Size a, Size b);
Size operator*(Size a, Size b);
inline Size& operator*=(Size& a, Size b) { return a = a * b; }
// Surely equal, whatever the sizes.
bool operator==(Size a, Size b);

// The same, a number where it has turned out to be one.
Size folded(Size size);
std::vector<Size> fixedSizes(const std::vector<int64_t>& numbers);
std::vector<int64_t> hintsOf(const std::vector<Size>& sizes);
bool allFixed(const std::vector<Size>& sizes);
std::string textOf(Size size);

}  // namespace kintsugi::passes
