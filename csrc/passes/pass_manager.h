// Runs passes over a document: dump, time (passes/pass_statistics.h), run, dump, verify. Those over tensor
// graphs are in passes/graph_passes.h.
//
// A pass is a function on a document with a name; those that file tests use (`; test: pass=guard-dedup`) have
// rows in pass_manager.cc. Where verification is on (support/verification.h), the document is verified before
// the first pass and after each one: a pass that breaks it is a bug of ours (KINTSUGI_CHECK), reported with
// its name and the text of the document.
//
// Ownership: passes are constant rows; a PassManager owns nothing but its list, and is used by
// one thread. No GIL.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "guard/document.h"
#include "ir/verifier.h"
#include "support/verification.h"

namespace kintsugi::passes {

struct Pass {
  const char* name;
  std::function<void(guard::Document& document)> run;
};

// In the order in which the default pipeline runs them.
std::span<const Pass> allPasses();
// nullptr: there is no pass of this name.
const Pass* findPass(std::string_view name);

class PassManager {
 public:
  enum class When : uint8_t { kBefore, kAfter };
  using Dump = std::function<void(const Pass& pass, When when, const guard::Document& document)>;

  PassManager& add(Pass pass);
  PassManager& addAll();
  PassManager& setDump(Dump dump);
  PassManager& setVerify(bool verify);
  // How strict the verifier is before the first pass; after a pass it is kOptimized.
  PassManager& setInput(ir::VerifierMode mode);

  void run(guard::Document& document);

 private:
  std::vector<Pass> passes_;
  Dump dump_;
  bool verify_ = verifying();
  ir::VerifierMode input_ = ir::VerifierMode::kOptimized;
};

}  // namespace kintsugi::passes
