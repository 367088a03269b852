#include "diag/diagnostic.h"

#include <array>

namespace kintsugi::diag {

namespace {

constexpr CodeInfo kCodes[] = {
#define KTG_CODE(id, name, severity, message, cure) \
  {Code::id, #id, name, Severity::k##severity, message, cure},
#include "diag/codes.def"
#undef KTG_CODE
};

}  // namespace

const CodeInfo& info(Code code) {
  const auto index = static_cast<std::size_t>(code);
  KINTSUGI_CHECK(index < std::size(kCodes), "diagnostic code out of range: ", index);
  return kCodes[index];
}

std::span<const CodeInfo> allCodes() { return kCodes; }

const CodeInfo* findCode(std::string_view id) {
  for (const CodeInfo& row : kCodes) {
    if (row.id == id) {
      return &row;
    }
  }
  return nullptr;
}

std::string_view severityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kBreak:
      return "break";
    case Severity::kWarning:
      return "warning";
    case Severity::kInfo:
      return "info";
  }
  KINTSUGI_UNREACHABLE("severity");
}

std::string formatTemplate(std::string_view text, std::span<const std::string> args) {
  std::string out;
  out.reserve(text.size() + 32);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool placeholder = text[i] == '{' && i + 2 < text.size() && text[i + 2] == '}' &&
                             text[i + 1] >= '0' && text[i + 1] <= '9';
    if (!placeholder) {
      out += text[i];
      continue;
    }
    const auto index = static_cast<std::size_t>(text[i + 1] - '0');
    out += index < args.size() ? std::string_view(args[index]) : std::string_view("?");
    i += 2;
  }
  return out;
}

std::string Diagnostic::message() const { return formatTemplate(codeInfo().message, args); }

std::string Diagnostic::format() const {
  const CodeInfo& row = codeInfo();
  std::string out(row.id);
  out += " ";
  out += row.name;
  out += ": ";
  out += message();
  if (location.known()) {
    out += " at " + location.format();
  }
  return out;
}

std::string Diagnostic::cure() const { return formatTemplate(codeInfo().cure, args); }

}  // namespace kintsugi::diag
