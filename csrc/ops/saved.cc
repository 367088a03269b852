#include "ops/saved.h"

#include <array>
#include <string_view>

#include "ops/operator.h"

namespace kintsugi::ops {

namespace {

constexpr size_t kMost = 5;

struct Row {
  std::array<Saved, kMost> all{};
  uint8_t count = 0;
};

consteval bool isDigit(char c) { return c >= '0' && c <= '9'; }

consteval Saved::As readAs(char c) {
  switch (c) {
    case 'v':
      return Saved::As::kView;
    case 'w':
      return Saved::As::kWidened;
    case 'f':
      return Saved::As::kFolded;
    case 'm':
      return Saved::As::kUnlessBools;
    case 'p':
      return Saved::As::kUnlessMean;
    default:
      throw "a way to keep a tensor";
  }
}

consteval Row parse(std::string_view text) {
  Row row;
  for (size_t at = 0; at < text.size(); ++at) {
    Saved saved;
    const char what = text[at++];
    if (!isDigit(what) && what != 'r' && what != 'o')
      throw "an operand, the result or what is the node's own";
    saved.what = static_cast<int8_t>(what == 'r' ? Saved::kResult : what == 'o' ? Saved::kOwn : what - '0');
    if (at < text.size() && text[at] != ':' && text[at] != ' ') saved.as = readAs(text[at++]);
    if (at < text.size() && text[at] == ':') {
      for (++at; at < text.size() && isDigit(text[at]); ++at) {
        saved.wanted = static_cast<uint16_t>(saved.wanted | 1U << static_cast<unsigned>(text[at] - '0'));
      }
    }
    if (at < text.size() && text[at] == '!') {
      saved.alone = true;
      ++at;
    }
    if (at < text.size() && text[at] != ' ') throw "a blank between entries";
    row.all[row.count++] = saved;
  }
  return row;
}

#define KTG_SAVES(text) text
#define KTG_OPERATOR(id, name, ...) parse("" __VA_ARGS__),
constexpr std::array<Row, kOperatorCount> kRows = {
    Row{},
#include "ops/operators.def"
};

}  // namespace

std::span<const Saved> savedBy(Operator op) {
  const Row& row = kRows[static_cast<size_t>(op)];
  return {row.all.data(), row.count};
}

}  // namespace kintsugi::ops
