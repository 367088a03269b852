#include "kb/matcher.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>

namespace kintsugi::kb {

namespace {

constexpr std::size_t kBlock = 64 * 1024;
// A longer line is looked at in pieces that overlap, so that a message on the seam is found.
constexpr std::size_t kLongLine = 64 * 1024;
constexpr std::size_t kOverlap = 4 * 1024;
constexpr std::size_t kShown = 600;
constexpr std::int64_t kAutomatonMemory = std::int64_t{256} << 20;

RE2::Options patternOptions() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kAutomatonMemory);
  options.set_never_nl(true);
  return options;
}

// Cut where no character of UTF-8 is split.
std::string shorten(std::string_view line) {
  if (line.size() <= kShown) return std::string(line);
  std::size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return std::string(line.substr(0, end)) + "...";
}

}  // namespace

struct Matcher::Impl {
  explicit Impl() : set(patternOptions(), RE2::UNANCHORED) {}
  RE2::Set set;
  std::vector<std::unique_ptr<RE2>> single;  // for the groups, and when the automaton needs too much memory
  std::optional<PatternError> error;
};

Matcher::Matcher(const std::vector<std::string>& patterns) : impl_(std::make_unique<Impl>()) {
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    std::string message;
    // ^ and $ are those of a line, also when a block of lines is looked at.
    const std::string multiline = "(?m)" + patterns[i];
    auto pattern = std::make_unique<RE2>(multiline, patternOptions());
    if (!pattern->ok()) {
      impl_->error = PatternError{i, pattern->error()};
      return;
    }
    if (impl_->set.Add(multiline, &message) < 0) {
      impl_->error = PatternError{i, message};
      return;
    }
    impl_->single.push_back(std::move(pattern));
  }
  if (!impl_->set.Compile()) {
    impl_->error = PatternError{patterns.size(), "the patterns together need too much memory"};
  }
}

Matcher::~Matcher() = default;
const std::optional<PatternError>& Matcher::error() const { return impl_->error; }
std::size_t Matcher::size() const { return impl_->single.size(); }

Scan::Scan(const Matcher& matcher)
    : matcher_(*matcher.impl_), hits_(matcher.size()), lastLine_(matcher.size(), 0) {}

std::vector<int> Scan::matching(std::string_view text) const {
  std::vector<int> found;
  RE2::Set::ErrorInfo error{RE2::Set::kNoError};
  if (matcher_.single.empty()) return found;
  if (matcher_.set.Match({text.data(), text.size()}, &found, &error) || error.kind == RE2::Set::kNoError) {
    return found;
  }
  // The automaton of all patterns grew too large for this text: one by one, they need little.
  found.clear();
  for (std::size_t i = 0; i < matcher_.single.size(); ++i) {
    if (RE2::PartialMatch({text.data(), text.size()}, *matcher_.single[i]))
      found.push_back(static_cast<int>(i));
  }
  return found;
}

void Scan::feed(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t room = rest_.size() < kBlock ? kBlock - rest_.size() : 1;
    const std::size_t take = std::min(piece.size(), room);
    rest_.append(piece.substr(0, take));
    piece.remove_prefix(take);
    if (rest_.size() < kBlock) return;
    if (const std::size_t end = rest_.rfind('\n'); end != std::string::npos) {
      scanBlock(std::string_view(rest_).substr(0, end + 1));
      rest_.erase(0, end + 1);
    } else if (rest_.size() >= kLongLine) {
      scanLine(rest_, lines_ + 1);
      rest_.erase(0, rest_.size() - kOverlap);
    }
  }
}

std::vector<Hit> Scan::finish() {
  if (!rest_.empty()) {
    rest_ += '\n';
    scanBlock(rest_);
    rest_.clear();
  }
  std::vector<Hit> found;
  for (std::size_t i = 0; i < hits_.size(); ++i) {
    if (hits_[i].count > 0) found.push_back(std::move(hits_[i]));
    hits_[i] = Hit{};
  }
  std::stable_sort(found.begin(), found.end(), [](const Hit& a, const Hit& b) { return a.line < b.line; });
  std::fill(lastLine_.begin(), lastLine_.end(), 0);
  lines_ = 0;
  return found;
}

// `block` is whole lines, the last newline included.
void Scan::scanBlock(std::string_view block) {
  // A carriage return hides the end of a line from the patterns.
  const bool any = block.find('\r') != std::string_view::npos || !matching(block).empty();
  if (!any) {
    lines_ += static_cast<std::uint64_t>(std::count(block.begin(), block.end(), '\n'));
    return;
  }
  while (!block.empty()) {
    const std::size_t end = block.find('\n');
    ++lines_;
    scanLine(block.substr(0, end), lines_);
    block.remove_prefix(end + 1);
  }
}

void Scan::scanLine(std::string_view line, std::uint64_t number) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) return;
  for (const int pattern : matching(line)) note(static_cast<std::size_t>(pattern), line, number);
}

void Scan::note(std::size_t pattern, std::string_view line, std::uint64_t number) {
  if (lastLine_[pattern] == number) return;  // the overlap of two pieces of a long line
  lastLine_[pattern] = number;
  Hit& hit = hits_[pattern];
  if (hit.count++ > 0) return;
  hit.pattern = pattern;
  hit.line = number;
  const RE2& regex = *matcher_.single[pattern];
  std::vector<re2::StringPiece> parts(static_cast<std::size_t>(regex.NumberOfCapturingGroups()) + 1);
  const re2::StringPiece text(line.data(), line.size());
  if (!regex.Match(text, 0, text.size(), RE2::UNANCHORED, parts.data(), static_cast<int>(parts.size())))
    return;
  // The message itself has to be in what is shown.
  const auto start = static_cast<std::size_t>(parts[0].data() - text.data());
  hit.text = shorten(start + parts[0].size() <= kShown ? line : line.substr(start));
  for (const auto& [index, name] : regex.CapturingGroupNames()) {
    const re2::StringPiece& part = parts[static_cast<std::size_t>(index)];
    if (part.data() != nullptr) hit.groups.emplace_back(name, shorten({part.data(), part.size()}));
  }
}

}  // namespace kintsugi::kb
