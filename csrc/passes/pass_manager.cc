#include "passes/pass_manager.h"

#include "guard/verifier.h"
#include "passes/named_pass.h"
#include "passes/pass_log.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

const Pass kPasses[] = {
    {"segments", [](PassUnit& unit) { unit.segments.start = cutSegments(unit.document, unit.segments); }},
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

const Pass* findPass(std::string_view name) { return findNamed<Pass>(kPasses, name); }

PassManager& PassManager::add(Pass pass) {
  passes_.push_back(std::move(pass));
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
  PassUnit unit{document};
  run(unit);
}

void PassManager::run(PassUnit& unit) {
  guard::Document& document = unit.document;
  const CheckContext context(&document, dumpDocument);
  PassLog log(document.trace, [&document] { return guard::print(document); });
  log.begin("trace");
  if (verify_) {
    check(document, input_, "before the first pass");
  }
  for (const Pass& pass : passes_) {
    log.run(
        "trace", pass.name, [&document] { return document.trace.code.size(); }, [&] { pass.run(unit); });
    if (verify_) {
      check(document, ir::VerifierMode::kOptimized, "after pass " + std::string(pass.name));
    }
  }
}

}  // namespace kintsugi::passes
