// The kinds of sources and guards as rows: text, and which parts (KINTSUGI_SOURCES, KINTSUGI_GUARDS) each one
// has.
//
// Constant data. No GIL.
#pragma once

#include <optional>
#include <string_view>

#include "guard/guard.h"
#include "guard/source.h"

namespace kintsugi::guard {

struct KindInfo {
  std::string_view text;
  std::string_view parts;

  bool has(char part) const { return parts.find(part) != std::string_view::npos; }
};

const KindInfo& kindInfo(SourceKind kind);
const KindInfo& kindInfo(GuardKind kind);
std::optional<SourceKind> findSourceKind(std::string_view text);
std::optional<GuardKind> findGuardKind(std::string_view text);

// The same kind with the same parts, and the same block; what a kind has no part for is not compared.
bool equal(const SourceNode& a, const SourceNode& b);
bool equal(const Guard& a, const Guard& b);

}  // namespace kintsugi::guard
