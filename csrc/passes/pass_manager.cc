#include "passes/pass_manager.h"

#include "guard/verifier.h"
#include "passes/compact_snapshots.h"
#include "passes/dead_code.h"
#include "passes/guard_dedup.h"
#include "passes/pass_statistics.h"
#include "passes/segments.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

// compact-snapshots before dead-code: states that go take the last needs of recipes and values with them.
const Pass kPasses[] = {
    {"guard-dedup", deduplicateGuards},
    {"compact-snapshots", compactSnapshots},
    {"dead-code", eliminateDeadCode},
};

// Not in the default pipeline: run on request.
const Pass kOnRequest[] = {
    {"segments", [](guard::Document& document) { cutSegments(document); }},
};

void dumpDocument(const void* object, std::string& out) {
  out += guard::print(*static_cast<const guard::Document*>(object));
}

void check(const guard::Document& document, ir::VerifierMode mode, std::string_view when) {
  const std::vector<ir::Problem> problems = guard::verify(document, mode);
  KINTSUGI_CHECK(problems.empty(), "the trace is not valid ", when, ":\n", ir::formatProblems(problems));
}

}  // namespace

std::span<const Pass> allPasses() { return kPasses; }

const Pass* findPass(std::string_view name) {
  for (const std::span<const Pass> passes :
       {std::span<const Pass>(kPasses), std::span<const Pass>(kOnRequest)}) {
    for (const Pass& pass : passes) {
      if (pass.name == name) {
        return &pass;
      }
    }
  }
  return nullptr;
}

PassManager& PassManager::add(Pass pass) {
  passes_.push_back(std::move(pass));
  return *this;
}

PassManager& PassManager::addAll() {
  for (const Pass& pass : kPasses) {
    add(pass);
  }
  return *this;
}

PassManager& PassManager::setDump(Dump dump) {
  dump_ = std::move(dump);
  return *this;
}

PassManager& PassManager::setVerify(bool verify) {
  verify_ = verify;
  return *this;
}

PassManager& PassManager::setInput(ir::VerifierMode mode) {
  input_ = mode;
  return *this;
}

void PassManager::run(guard::Document& document) {
  const CheckContext context(&document, dumpDocument);
  if (verify_) {
    check(document, input_, "before the first pass");
  }
  for (const Pass& pass : passes_) {
    if (dump_) {
      dump_(pass, When::kBefore, document);
    }
    {
      const PassTimer timer("trace", pass.name, [&document] { return document.trace.code.size(); });
      pass.run(document);
    }
    if (dump_) {
      dump_(pass, When::kAfter, document);
    }
    if (verify_) {
      check(document, ir::VerifierMode::kOptimized, "after pass " + std::string(pass.name));
    }
  }
}

}  // namespace kintsugi::passes
