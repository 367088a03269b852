#include "driver/lifecycle_events.h"

#include "diag/events.h"
#include "runtime/run_events.h"

namespace kintsugi::driver {

namespace events = diag::events;

void emitBreak(const diag::Diagnostic& diagnostic) {
  if (!events::on()) return;
  std::vector<diag::SourceLoc> stack = diagnostic.stack;
  if (stack.empty() && diagnostic.location.known()) stack.push_back(diagnostic.location);
  events::emit({.startNs = events::nowNs(),
                .stack = events::intern(events::stackText(stack)),
                .name = events::intern(diagnostic.id()),
                .text = events::intern(diagnostic.message()),
                .more = events::intern(diagnostic.cure()),
                .kind = events::Kind::kBreak});
}

void emitRecompile(const runtime::CompiledTrace& failed, const Recompile& report) {
  if (!events::on()) return;
  events::emit({.startNs = events::nowNs(),
                .trace = failed.number(),
                .stack = runtime::entryOf(failed),
                .name = events::intern(report.guard),
                .text = events::intern(report.expected),
                .more = events::intern(report.seen),
                .kind = events::Kind::kRecompile});
}

std::string varyingText(uint64_t sizes) {
  if (sizes == 0) return "value";
  std::string text;
  for (int d = 0; d < 64; ++d) {
    if ((sizes >> d & 1) != 0) text += (text.empty() ? "size " : ", ") + std::to_string(d);
  }
  return text;
}

void emitDynamic(const runtime::CompiledTrace& failed, const std::string& source, uint64_t sizes) {
  if (!events::on()) return;
  events::emit({.startNs = events::nowNs(),
                .trace = failed.number(),
                .stack = runtime::entryOf(failed),
                .name = events::intern(source),
                .text = events::intern(varyingText(sizes)),
                .kind = events::Kind::kDynamic});
}

void emitEviction(const runtime::CompiledTrace& old, size_t limit) {
  if (!events::on()) return;
  events::emit({.startNs = events::nowNs(),
                .extra = limit,
                .trace = old.number(),
                .stack = runtime::entryOf(old),
                .kind = events::Kind::kEvict});
}

void emitSideTrace(const runtime::CompiledTrace& parent, uint32_t guard, ir::StateId state,
                   const runtime::CompiledTrace& side) {
  if (!events::on()) return;
  events::emit({.startNs = events::nowNs(),
                .extra = guard,
                .trace = side.number(),
                .stack = runtime::stackOf(parent, state),
                .name = events::intern(std::to_string(parent.number())),
                .kind = events::Kind::kSideTrace});
}

}  // namespace kintsugi::driver
