#include "runtime/rereads.h"

#include <algorithm>
#include <utility>

#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

const WrittenPlaces* Rereads::hold(CompiledTrace& trace, size_t begin, size_t end, guard::BlockId block,
                                   const pyapi::Arguments& args, PyObject* const* values, SlotArray slots) {
  Base& base = baseOf(trace);
  Later* later = laterAt(base, trace, begin, end);
  if (later == nullptr || !base.untouched.check(block, args, values, slots)) return nullptr;
  if (later->program && !later->program->check(block, args, values, slots)) return nullptr;
  return &later->written;
}

Rereads::Base& Rereads::baseOf(CompiledTrace& trace) {
  const auto known = std::ranges::find_if(bases_, [&](const auto& base) { return base->trace == &trace; });
  if (known != bases_.end()) return **known;
  WrittenPlaces all(effects_, 0, effects_.document.trace.code.size());
  // The state of torch is the thread's own, or the trace changes it itself.
  GuardProgram untouched(trace.recording(), [&](const guard::Guard& g) {
    return g.kind != guard::GuardKind::kGlobalState && !all.concerns(g);
  });
  untouched.takeBaselines(trace.guards());
  return *bases_.emplace_back(new Base{&trace, std::move(all), std::move(untouched)});
}

Rereads::Later* Rereads::laterAt(const Base& base, CompiledTrace& trace, size_t begin, size_t end) {
  const auto place = std::ranges::find_if(places_, [&](const Place& known) {
    return known.base == &base && known.begin == begin && known.end == end;
  });
  if (place != places_.end()) return place->later;
  WrittenPlaces written(effects_, begin, end);
  // Most effects write to what no guard is about, so few programs do for many places in the trace.
  const auto same = std::ranges::find_if(
      laters_, [&](const auto& later) { return later->base == &base && later->written == written; });
  if (same != laters_.end()) return places_.emplace_back(&base, begin, end, same->get()).later;
  // Each has the sources of the trace's inputs. A run that needs more of them leaves the trace, which takes
  // eager mode's time.
  constexpr size_t kMost = 256;
  if (laters_.size() == kMost) return nullptr;
  const auto chosen = [&](const guard::Guard& g) {
    return g.kind != guard::GuardKind::kGlobalState && base.all.concerns(g) && !written.concerns(g);
  };
  std::optional<GuardProgram> program;
  if (std::ranges::any_of(trace.recording().document.guards.guards, chosen))
    program.emplace(trace.recording(), chosen);
  laters_.emplace_back(new Later{&base, std::move(written), std::move(program)});
  return places_.emplace_back(&base, begin, end, laters_.back().get()).later;
}

int Rereads::traverse(visitproc visit, void* arg) const {
  int stop = 0;
  for (const auto& base : bases_) {
    if (stop == 0) stop = base->untouched.traverse(visit, arg);
  }
  for (const auto& later : laters_) {
    if (stop == 0 && later->program) stop = later->program->traverse(visit, arg);
  }
  return stop;
}

}  // namespace kintsugi::runtime
