// Diagnostic: a coded reason, with arguments and a place in the user's program.
//
// The codes, their messages and their cures are rows of `codes.def`. A Diagnostic is what a `Result` carries
// when something can't be captured; it becomes a graph-break reason, a log line and an entry of the report.
//
// Ownership: a plain value that owns its strings.
// Threads/GIL: no shared state, no GIL.
// Invalidation: never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diag/source_loc.h"
#include "support/result.h"

namespace kintsugi::diag {

enum class Severity : std::uint8_t { kError, kBreak, kWarning, kInfo };

enum class Code : std::uint16_t {
#define KTG_CODE(id, name, severity, message, cure) id,
#include "diag/codes.def"
#undef KTG_CODE
};

struct CodeInfo {
  Code code;
  std::string_view id;    // "KTG0101"
  std::string_view name;  // "opaque-c-call"
  Severity severity;
  std::string_view message;  // with {0} {1} ...
  std::string_view cure;     // with {0} {1} ...
};

const CodeInfo& info(Code code);
std::span<const CodeInfo> allCodes();
// nullptr when no row has this id.
const CodeInfo* findCode(std::string_view id);
std::string_view severityName(Severity severity);

// Replaces {0}, {1} ... in `text`; an argument that is not there is shown as `?`, since a message that lost
// an argument is better than no message.
std::string formatTemplate(std::string_view text, std::span<const std::string> args);

struct Diagnostic {
  Diagnostic() = default;
  explicit Diagnostic(Code code, std::vector<std::string> args = {}, SourceLoc location = {})
      : code(code), args(std::move(args)), location(std::move(location)) {}

  const CodeInfo& codeInfo() const { return info(code); }
  std::string_view id() const { return codeInfo().id; }
  // The message alone: `bytecode FOO is not supported by the recorder`.
  std::string message() const;
  // One line: `KTG0106 unsupported-bytecode: bytecode FOO is ... at f.py:44 (forward)`.
  std::string format() const;
  // What the user can do about it.
  std::string cure() const;

  bool operator==(const Diagnostic&) const = default;

  Code code = Code::KTG0000;
  std::vector<std::string> args;
  SourceLoc location;
  // The user's stack at the event, outermost first; may be empty when only the place is known.
  std::vector<SourceLoc> stack;
};

template <typename T>
using Result = ::kintsugi::Result<T, Diagnostic>;

}  // namespace kintsugi::diag
