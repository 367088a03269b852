// Finds the knowledge base's entries in a log: all patterns at once, in one pass, as a stream.
//
// Idea: the patterns are one RE2::Set, whose automaton reads each byte once however many patterns there are.
// A log is looked at in blocks of whole lines; only a block in which something matches is looked at line by
// line. Only the first lines of a match are kept, with their named groups, so memory is bounded by the number
// of patterns, not by the log.
//
// Ownership: a Matcher owns its automaton; a Scan refers to its Matcher, which has to outlive it. Threads: a
// Matcher is constant once compiled, any number of scans may use it; a Scan belongs to one thread.
// Invalidation: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kintsugi::kb {

// A pattern that can't be used: which one, and RE2's words about it.
struct PatternError {
  std::size_t pattern = 0;
  std::string message;
};

struct Hit {
  std::size_t pattern = 0;
  std::uint64_t count = 0;                                  // lines
  std::uint64_t line = 0;                                   // of the first one, from 1
  std::string text;                                         // of the first one, shortened
  std::vector<std::pair<std::string, std::string>> groups;  // named groups of the first one
};

class Matcher {
 public:
  // `patterns` in RE2's syntax, each looked for anywhere in a line.
  explicit Matcher(const std::vector<std::string>& patterns);
  ~Matcher();
  Matcher(const Matcher&) = delete;

  // Set when a pattern can't be used; then there is nothing to scan with.
  const std::optional<PatternError>& error() const;
  std::size_t size() const;

 private:
  friend class Scan;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Scan {
 public:
  explicit Scan(const Matcher& matcher);
  // The next piece of the log, cut anywhere.
  void feed(std::string_view piece);
  // The end of the log: what was found, in the order of the first lines.
  std::vector<Hit> finish();
  std::uint64_t lines() const { return lines_; }

 private:
  void scanBlock(std::string_view block);
  void scanLine(std::string_view line, std::uint64_t number);
  void note(std::size_t pattern, std::string_view line, std::uint64_t number);
  std::vector<int> matching(std::string_view text) const;

  const Matcher::Impl& matcher_;
  std::string rest_;  // an incomplete line
  std::uint64_t lines_ = 0;
  std::vector<Hit> hits_;  // by pattern
  std::vector<std::uint64_t> lastLine_;
};

}  // namespace kintsugi::kb
