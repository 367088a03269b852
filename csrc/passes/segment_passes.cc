#include "passes/segment_passes.h"

#include <array>
#include <string>

#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/channels_last.h"
#include "passes/expand_einsums.h"
#include "passes/fold_convolutions.h"
#include "passes/named_pass.h"
#include "passes/own_writes.h"
#include "passes/pass_log.h"
#include "support/check.h"
#include "support/verification.h"

namespace kintsugi::passes {

namespace {

constexpr SegmentPass kPasses[] = {
    {"expand-einsums", [](SegmentPassUnit& unit) { return expandEinsums(unit.segment); }},
    {"gather-own-writes",
     [](SegmentPassUnit& unit) { return gatherOwnWrites(unit.segment, unit.options.traits); }},
    {"fold-convolutions",
     [](SegmentPassUnit& unit) { return foldConvolutions(unit.segment, unit.options.contract); }},
    {"put-channels-last", [](SegmentPassUnit& unit) { return putChannelsLast(unit.segment); }},
};

// Einsums become products before writes are looked at: a product may be what is written.
constexpr std::string_view kPrepare[] = {"expand-einsums", "gather-own-writes"};
constexpr std::string_view kFoldAndLayOut[] = {"fold-convolutions", "put-channels-last"};

template <size_t kCount>
bool runNamed(const SegmentPassUnit& unit, const std::string_view (&names)[kCount], bool untilNone) {
  std::array<const SegmentPass*, kCount> passes;
  for (size_t k = 0; k < kCount; ++k) passes[k] = findSegmentPass(names[k]);
  return runSegmentPasses(unit, passes, untilNone);
}

}  // namespace

std::span<const SegmentPass> segmentPasses() { return kPasses; }

const SegmentPass* findSegmentPass(std::string_view name) { return findNamed<SegmentPass>(kPasses, name); }

bool runSegmentPasses(SegmentPassUnit unit, std::span<const SegmentPass* const> passes, bool untilNone) {
  PassLog log(unit.segment, [&unit] { return ir::print(unit.segment); });
  log.begin("segment");
  checkSegment(unit.segment, "before its passes");
  bool changed = false;
  for (const SegmentPass* pass : passes) {
    log.run(
        "segment", pass->name, [&unit] { return unit.segment.code.size(); },
        [&] { changed = pass->run(unit); });
    checkSegment(unit.segment, std::string("after pass ") + pass->name);
    if (untilNone && !changed) {
      break;
    }
  }
  return changed;
}

void prepareSegment(SegmentPassUnit unit) { runNamed(unit, kPrepare, false); }

bool foldAndLayOut(SegmentPassUnit unit) { return runNamed(unit, kFoldAndLayOut, true); }

void checkSegment(const ir::Trace& segment, std::string_view when) {
  if (!verifying()) {
    return;
  }
  const std::vector<ir::Problem> problems = ir::verify(segment, ir::VerifierMode::kSegment);
  KINTSUGI_CHECK(problems.empty(), "a segment is not valid ", when, ":\n", ir::formatProblems(problems),
                 ir::print(segment));
}

}  // namespace kintsugi::passes
