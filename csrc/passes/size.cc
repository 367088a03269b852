#include "passes/size.h"

#include <algorithm>

#include "support/check.h"

namespace kintsugi::passes {

namespace {

thread_local SizeTable* gTable = nullptr;

// Sizes that a text makes up may be beyond 64 bits: they wrap, as long as nobody computes with them.
int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

SizeSum normal(SizeSum sum) {
  for (SizeTerm& term : sum) {
    std::sort(term.symbols.begin(), term.symbols.end());
  }
  std::sort(sum.begin(), sum.end());
  SizeSum out;
  for (SizeTerm& term : sum) {
    if (!out.empty() && out.back().symbols == term.symbols) {
      out.back().factor = plus(out.back().factor, term.factor);
    } else {
      out.push_back(std::move(term));
    }
  }
  std::erase_if(out, [](const SizeTerm& term) { return term.factor == 0; });
  return out;
}

SizeSum product(const SizeSum& a, const SizeSum& b) {
  SizeSum out;
  for (const SizeTerm& x : a) {
    for (const SizeTerm& y : b) {
      SizeTerm term = x;
      term.symbols.insert(term.symbols.end(), y.symbols.begin(), y.symbols.end());
      term.factor = times(term.factor, y.factor);
      out.push_back(std::move(term));
    }
  }
  return normal(std::move(out));
}

SizeSum sum(SizeSum a, const SizeSum& b, int64_t factor) {
  for (SizeTerm term : b) {
    term.factor = times(term.factor, factor);
    a.push_back(std::move(term));
  }
  return normal(std::move(a));
}

uint8_t signOf(int64_t number) { return number < 0 ? kLess : number == 0 ? kZero : kMore; }

}  // namespace

SizeTable::SizeTable() : exprs_(1) {}

Size SizeTable::symbol(int64_t hint, bool isSize) {
  const auto number = static_cast<uint32_t>(symbols_.size());
  symbols_.push_back({hint, isSize, false, {}});
  return make({{{number}, 1}});
}

uint32_t SizeTable::symbolOf(Size symbol) const { return exprs_[symbol.expr].front().symbols.front(); }

int64_t SizeTable::hintOf(const SizeSum& sum) const {
  int64_t out = 0;
  for (const SizeTerm& term : sum) {
    int64_t part = term.factor;
    for (const uint32_t symbol : term.symbols) {
      part = times(part, symbols_[symbol].hint);
    }
    out = plus(out, part);
  }
  return out;
}

SizeSum SizeTable::normalized(SizeSum sum) { return normal(std::move(sum)); }

Size SizeTable::make(const SizeSum& sum) {
  const bool number = sum.empty() || (sum.size() == 1 && sum[0].symbols.empty());
  Size size(hintOf(sum));
  if (!number) {
    const auto [it, inserted] = index_.try_emplace(sum, static_cast<uint32_t>(exprs_.size()));
    if (inserted) {
      exprs_.push_back(sum);
    }
    size.expr = it->second;
  }
  return size;
}

SizeSum SizeTable::reduced(const SizeSum& sum) const {
  SizeSum out;
  bool changed = false;
  for (const SizeTerm& term : sum) {
    const auto found = std::find_if(term.symbols.begin(), term.symbols.end(),
                                    [this](uint32_t symbol) { return symbols_[symbol].replaced; });
    if (found == term.symbols.end()) {
      out.push_back(term);
      continue;
    }
    changed = true;
    SizeTerm rest = term;
    rest.symbols.erase(rest.symbols.begin() + (found - term.symbols.begin()));
    const SizeSum parts = product({rest}, symbols_[*found].by);
    out.insert(out.end(), parts.begin(), parts.end());
  }
  // What replaces a symbol has earlier ones only: this ends.
  return changed ? reduced(normal(std::move(out))) : normal(std::move(out));
}

SizeSum SizeTable::sumOf(Size size) const {
  if (size.fixed()) {
    return size.hint == 0 ? SizeSum() : SizeSum{{{}, size.hint}};
  }
  return reduced(exprs_[size.expr]);
}

// A sum whose products all pull one way is farthest from there where the sizes are least.
uint8_t SizeTable::possibleSigns(const SizeSum& difference) const {
  constexpr int64_t kLeast = 2;
  int64_t extreme = 0;
  bool rises = true, falls = true;
  for (const SizeTerm& term : difference) {
    int64_t part = term.factor;
    for (const uint32_t symbol : term.symbols) {
      part *= kLeast;
      if (!symbols_[symbol].isSize) {
        return kLess | kZero | kMore;
      }
    }
    rises = rises && (term.symbols.empty() || term.factor > 0);
    falls = falls && (term.symbols.empty() || term.factor < 0);
    extreme += part;
  }
  if (rises && falls) {
    return signOf(extreme);
  }
  return rises && extreme > 0 ? kMore : falls && extreme < 0 ? kLess : kLess | kZero | kMore;
}

bool SizeTable::require(Size a, Size b, uint8_t signs) {
  const SizeSum difference = sum(sumOf(a), sumOf(b), -1);
  const uint8_t possible = possibleSigns(difference);
  if ((possible & signs) == possible) {
    return true;
  }
  if ((signOf(hintOf(difference)) & signs) == 0) {
    return false;
  }
  checks_.push_back({difference, signs});
  if (signs == kZero) {
    replace(difference);
  }
  return true;
}

// The latest symbol, where it stands alone, as what it is equal to.
void SizeTable::replace(const SizeSum& zero) {
  uint32_t latest = 0;
  for (const SizeTerm& term : zero) {
    for (const uint32_t symbol : term.symbols) {
      latest = std::max(latest, symbol);
    }
  }
  const SizeTerm* alone = nullptr;
  size_t uses = 0;
  for (const SizeTerm& term : zero) {
    uses += static_cast<size_t>(std::count(term.symbols.begin(), term.symbols.end(), latest));
    if (term.symbols == std::vector<uint32_t>{latest} && (term.factor == 1 || term.factor == -1)) {
      alone = &term;
    }
  }
  if (alone == nullptr || uses != 1) {
    return;
  }
  Symbol& symbol = symbols_[latest];
  symbol.replaced = true;
  for (const SizeTerm& term : zero) {
    if (&term != alone) {
      symbol.by.push_back({term.symbols, -alone->factor * term.factor});
    }
  }
}

std::string SizeTable::text(const SizeSum& sum) {
  std::string out;
  for (const SizeTerm& term : sum) {
    out += out.empty() || term.factor < 0 ? "" : "+";
    const bool one = term.factor == 1 && !term.symbols.empty();
    out += one ? "" : std::to_string(term.factor);
    for (size_t k = 0; k < term.symbols.size(); ++k) {
      out += (k == 0 && one ? "s" : "*s") + std::to_string(term.symbols[k]);
    }
  }
  return out.empty() ? "0" : out;
}

SizeScope::SizeScope(SizeTable& table) : before_(gTable) { gTable = &table; }
SizeScope::~SizeScope() { gTable = before_; }

SizeTable& sizeTable() {
  KINTSUGI_CHECK(gTable != nullptr, "a size that varies without a table");
  return *gTable;
}

Size operator+(Size a, Size b) {
  if (a.fixed() && b.fixed()) {
    return a.hint + b.hint;
  }
  SizeTable& table = sizeTable();
  return table.make(sum(table.sumOf(a), table.sumOf(b), 1));
}

Size operator*(Size a, Size b) {
  if (a.fixed() && b.fixed()) {
    return a.hint * b.hint;
  }
  SizeTable& table = sizeTable();
  return table.make(product(table.sumOf(a), table.sumOf(b)));
}

bool operator==(Size a, Size b) {
  if (a.fixed() && b.fixed()) {
    return a.hint == b.hint;
  }
  return (a.expr == b.expr && a.hint == b.hint) || sizeTable().surelyEqual(a, b);
}

Size folded(Size size) { return size.fixed() ? size : sizeTable().make(sizeTable().sumOf(size)); }

std::vector<Size> fixedSizes(const std::vector<int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

std::vector<int64_t> hintsOf(const std::vector<Size>& sizes) {
  std::vector<int64_t> out;
  for (const Size& size : sizes) {
    out.push_back(size.hint);
  }
  return out;
}

bool allFixed(const std::vector<Size>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const Size& size) { return size.fixed(); });
}

std::string textOf(Size size) {
  return size.fixed() ? std::to_string(size.hint) : SizeTable::text(sizeTable().sumOf(size));
}

}  // namespace kintsugi::passes
