// Runs passes over a document, a trace with its sources and guards. Those over segments and over tensor
// graphs are in passes/segment_passes.h and passes/graph_passes.h.
//
// A pass is a row of pass_manager.cc: a function, and the name by which file tests (`; test: pass=segments`),
// logs and statistics know it. What it has to know besides is in its PassUnit. Each is timed
// (passes/pass_statistics.h). Where verification is on (support/verification.h), the document is verified
// before the first pass and behind each one: a pass that breaks it is a bug of ours (KINTSUGI_CHECK),
// reported with its name and the text of the document. With KINTSUGI_LOGS=graph_passes the document is
// printed as it comes and behind each pass that changed it.
//
//   PassUnit unit{document, {.traits = operatorTraits, .native = true}};
//   PassManager().add(*findPass("segments")).setInput(ir::VerifierMode::kRecorded).run(unit);
//
// Ownership: passes are constant rows; a PassManager owns nothing but its list, and is used by
// one thread. No GIL.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "guard/document.h"
#include "ir/verifier.h"
#include "passes/segments.h"
#include "support/verification.h"

namespace kintsugi::passes {

struct PassUnit {
  guard::Document& document;
  SegmentOptions segments = {};  // `start` follows the part that is worked on: passes may move it
};

struct Pass {
  const char* name;
  std::function<void(PassUnit& unit)> run;
};

std::span<const Pass> allPasses();
// nullptr: there is no pass of this name.
const Pass* findPass(std::string_view name);

class PassManager {
 public:
  PassManager& add(Pass pass);
  PassManager& setVerify(bool verify);
  // How strict the verifier is before the first pass; after a pass it is kOptimized.
  PassManager& setInput(ir::VerifierMode mode);

  void run(PassUnit& unit);
  void run(guard::Document& document);  // without knowledge of the dispatcher

 private:
  std::vector<Pass> passes_;
  bool verify_ = verifying();
  ir::VerifierMode input_ = ir::VerifierMode::kOptimized;
};

}  // namespace kintsugi::passes
