#include "guard/kinds.h"

#include <array>

#include "support/check.h"

namespace kintsugi::guard {

namespace {

constexpr auto kSourceKinds = std::to_array<KindInfo>({
#define KTG_KIND(name, text, parts) {text, parts},
    KINTSUGI_SOURCES(KTG_KIND)
#undef KTG_KIND
});

constexpr auto kGuardKinds = std::to_array<KindInfo>({
#define KTG_KIND(name, text, parts) {text, parts},
    KINTSUGI_GUARDS(KTG_KIND)
#undef KTG_KIND
});

template <typename Kind, typename Rows>
std::optional<Kind> find(const Rows& rows, std::string_view text) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].text == text) {
      return static_cast<Kind>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

const KindInfo& kindInfo(SourceKind kind) {
  const auto index = static_cast<size_t>(kind);
  KINTSUGI_CHECK(index < kSourceKinds.size(), "kind of source out of range: ", index);
  return kSourceKinds[index];
}

const KindInfo& kindInfo(GuardKind kind) {
  const auto index = static_cast<size_t>(kind);
  KINTSUGI_CHECK(index < kGuardKinds.size(), "kind of guard out of range: ", index);
  return kGuardKinds[index];
}

std::optional<SourceKind> findSourceKind(std::string_view text) {
  return find<SourceKind>(kSourceKinds, text);
}
std::optional<GuardKind> findGuardKind(std::string_view text) { return find<GuardKind>(kGuardKinds, text); }

bool equal(const SourceNode& a, const SourceNode& b) {
  const KindInfo& info = kindInfo(a.kind);
  return a.kind == b.kind && a.block == b.block && (!info.has('p') || a.parent == b.parent) &&
         (!info.has('k') || a.key == b.key) && (!(info.has('i') || info.has('v')) || a.index == b.index);
}

bool equal(const Guard& a, const Guard& b) {
  const KindInfo& info = kindInfo(a.kind);
  return a.kind == b.kind && a.block == b.block && (!info.has('s') || a.source == b.source) &&
         (!info.has('t') || a.other == b.other) && (!info.has('k') || a.key == b.key) &&
         (!(info.has('n') || info.has('m')) || a.number == b.number);
}

}  // namespace kintsugi::guard
