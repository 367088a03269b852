// The file tests of traces, guards, tensor graphs and plans: text in, text out (filetests/runner.h).
#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

#include "filetests/graph_modes.h"
#include "filetests/runner.h"
#include "guard/source_roots.h"
#include "guard/verifier.h"
#include "ir/liveness.h"
#include "ir/printer.h"
#include "ir/segments.h"
#include "passes/build_graph.h"
#include "passes/expand_einsums.h"
#include "passes/extract_segment.h"
#include "passes/fuse.h"
#include "passes/graph_passes.h"
#include "passes/graph_text.h"
#include "passes/pass_manager.h"
#include "passes/segment_passes.h"
#include "passes/simplify_graph.h"
#include "passes/size_text.h"
#include "passes/split_gradients.h"
#include "support/target.h"

namespace kintsugi::filetests {
namespace {

std::optional<ir::VerifierMode> verifierMode(std::string_view name) {
  if (name.empty() || name == "recorded") {
    return ir::VerifierMode::kRecorded;
  }
  if (name == "optimized") {
    return ir::VerifierMode::kOptimized;
  }
  return std::nullopt;
}

// The printed text, which has to read back as the same document and print as the same text.
std::string printChecked(const guard::Document& document) {
  const std::string text = guard::print(document);
  const diag::Result<guard::Document> again = guard::parse(text);
  if (!again.ok()) {
    return unexpected("the printed text does not parse: " + again.error().format()) + text;
  }
  if (!guard::equal(document, *again) || guard::print(*again) != text) {
    return unexpected("the printed text is another document") + text + guard::print(*again);
  }
  return text;
}

std::string runRoundtrip(std::string_view, std::string_view input) {
  const diag::Result<guard::Document> document = guard::parse(input);
  return document.ok() ? printChecked(*document) : unexpected(document.error().format());
}

std::string runParseError(std::string_view, std::string_view input) {
  const diag::Result<guard::Document> document = guard::parse(input);
  return document.ok() ? unexpected("the text parses") : syntaxError(document.error());
}

// The problems, none for a valid document; what can't be looked at is unexpected.
std::string problemsOf(std::string_view argument, std::string_view input) {
  const std::optional<ir::VerifierMode> mode = verifierMode(argument);
  const diag::Result<guard::Document> document = guard::parse(input);
  if (!mode.has_value() || !document.ok()) {
    return unexpected(mode.has_value() ? document.error().format() : "unknown verifier mode");
  }
  return ir::formatProblems(guard::verify(*document, *mode));
}

std::string runVerify(std::string_view argument, std::string_view input) {
  const std::string problems = problemsOf(argument, input);
  return problems.empty() ? "valid\n" : unexpected(problems);
}

std::string runVerifyError(std::string_view argument, std::string_view input) {
  const std::string problems = problemsOf(argument, input);
  return problems.empty() ? unexpected("the document is valid") : problems;
}

std::string runPass(std::string_view argument, std::string_view input) {
  diag::Result<guard::Document> document = guard::parse(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  const std::string before = ir::formatProblems(guard::verify(*document, ir::VerifierMode::kOptimized));
  if (!before.empty()) {
    return unexpected("the input is not valid: " + before);
  }
  passes::PassManager manager;
  std::stringstream names{std::string(argument)};
  for (std::string name; std::getline(names, name, ',');) {
    const passes::Pass* pass = passes::findPass(name);
    if (pass == nullptr) {
      return unexpected("unknown pass " + name);
    }
    manager.add(*pass);
  }
  manager.setVerify(true).run(*document);
  return printChecked(*document);
}

// `%2: 5  aten.relu.default ...`: the value and the instruction that uses it last.
std::string runLiveness(std::string_view, std::string_view input) {
  const diag::Result<guard::Document> document = guard::parse(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  const ir::Liveness live = ir::computeLiveness(document->trace, guard::sourceRoots(document->sources));
  std::string out;
  for (size_t v = 0; v < live.lastUse.size(); ++v) {
    const uint32_t at = live.lastUse[v];
    out += "%" + std::to_string(v) + ": " + (at == ir::kNone ? "never defined" : std::to_string(at)) + "\n";
  }
  return out;
}

// Sizes that vary as if they had been seen: 10 for the first dimension, 11 for the second.
void giveHints(ir::Trace& trace) {
  for (ir::TensorDesc& meta : trace.metas) {
    meta.hints.sizes = meta.sizes;
    for (size_t d = 0; d < meta.sizes.size(); ++d) {
      if (meta.sizes[d] == ir::kAnySize) meta.hints.sizes[d] = static_cast<int64_t>(10 + d);
    }
    meta.hints.strides = ir::packedStrides(meta.hints.sizes);
  }
}

// The tensor graph of each segment, or its kernels; `ARGUMENT` strict: what may give other bits stays a call;
// contract: operators may be rounded as one.
std::string runNative(std::string_view argument, std::string_view input, bool kernels) {
  const diag::Result<guard::Document> document = guard::parse(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  const ir::Trace& trace = document->trace;
  std::string out;
  for (const ir::SegmentRange& range : ir::findSegments(trace)) {
    ir::Trace segment = passes::extractSegment(trace, range);
    std::string reason;
    passes::SizeTable sizes;
    const passes::SizeScope scope(sizes);
    giveHints(segment);
    passes::prepareSegment({segment, {.traits = passes::traitsByName}});
    auto graph = passes::buildGraph(
        segment, {.strict = argument == "strict", .products = argument == "products"}, reason);
    if (!graph) {
      out += "refused: " + reason + "\n";
      continue;
    }
    passes::simplify(*graph, segment, {.contract = argument == "contract"});
    if (kernels) {
      passes::appendSizeRows(out, sizes, "");
      out += passes::print(passes::fuse(*graph, segment), *graph, segment);
    } else {
      out += printGraphChecked({segment, *graph});
    }
  }
  return out;
}

std::string runNativeGraph(std::string_view argument, std::string_view input) {
  return runNative(argument, input, false);
}
std::string runNativeKernels(std::string_view argument, std::string_view input) {
  return runNative(argument, input, true);
}

// The two halves of a segment that autograd follows, and what is kept between them.
// Argument `limits`: eager mode's clamp() gives no gradient at its limits.
std::string runGradients(std::string_view argument, std::string_view input) {
  passes::GradientOptions options;
  if (argument == "limits") options.clamps = {.clamp = false, .clampMin = false, .clampMax = false};
  const diag::Result<guard::Document> document = guard::parse(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  const ir::Trace& trace = document->trace;
  std::string out;
  const auto print = [&out](std::string_view title, const ir::Trace& segment) {
    std::string reason;
    passes::SizeTable sizes;
    const passes::SizeScope scope(sizes);
    auto graph = passes::buildGraph(segment, {}, reason);
    if (!graph) {
      out += "refused: " + reason + "\n";
      return;
    }
    passes::dropCopies(*graph);
    passes::mergeEqualNodes(*graph);
    passes::dropUnusedNodes(*graph);
    out += std::string(title) + "\n" + printGraphChecked({segment, *graph});
  };
  for (const ir::SegmentRange& range : ir::findSegments(trace)) {
    std::string reason;
    ir::Trace segment = passes::extractSegment(trace, range);
    passes::prepareSegment({segment, {.traits = passes::traitsByName}});
    const auto graph = passes::differentiate(segment, options, reason);
    if (!graph) {
      out += "refused: " + reason + "\n";
      continue;
    }
    const passes::TrainingSegments parts = passes::splitGradients(*graph);
    print("forward", parts.forward);
    out += "kept";
    constexpr std::string_view kFrom[] = {"input", "output", "own"};
    const auto place = [&](const ir::SegmentPlace& at) {
      return " " + std::string(kFrom[static_cast<size_t>(at.from)]) + " " + std::to_string(at.index);
    };
    for (const ir::KeptForm::Kept& kept : parts.form.kept) {
      out += place(kept.place) + (kept.now ? " now" : "");
    }
    out += "\nchecked";
    for (const ir::KeptForm::Checked& checked : parts.form.checked) out += place(checked.place);
    out += "\n";
    print("backward", parts.backward);
    if (!graph->epilogue.empty()) {
      print("epilogue", parts.epilogue);
    }
  }
  return out;
}

// Each segment behind the named passes, which run until one leaves it as it was.
std::string runSegmentPasses(std::string_view argument, std::string_view input) {
  const diag::Result<guard::Document> document = guard::parse(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  std::vector<const passes::SegmentPass*> chosen;
  std::stringstream names{std::string(argument)};
  for (std::string name; std::getline(names, name, ',');) {
    chosen.push_back(passes::findSegmentPass(name));
    if (chosen.back() == nullptr) {
      return unexpected("unknown pass " + name);
    }
  }
  std::string out;
  for (const ir::SegmentRange& range : ir::findSegments(document->trace)) {
    ir::Trace segment = passes::extractSegment(document->trace, range);
    const bool changed = passes::runSegmentPasses({segment, {.traits = passes::traitsByName}}, chosen, true);
    out += changed ? ir::print(segment) : "unchanged\n";
  }
  return out;
}

constexpr ModeRow kModes[] = {
    {"roundtrip", runRoundtrip},
    {"parse-error", runParseError},
    {"verify", runVerify},
    {"verify-error", runVerifyError},
    {"pass", runPass},
    {"liveness", runLiveness},
    {"native-graph", runNativeGraph},
    {"native-kernels", runNativeKernels},
    {"gradients", runGradients},
    {"segment-pass", runSegmentPasses},
};

}  // namespace
}  // namespace kintsugi::filetests

int main(int argc, char** argv) {
  using kintsugi::filetests::ModeRow;
  std::vector<ModeRow> modes(std::begin(kintsugi::filetests::kModes), std::end(kintsugi::filetests::kModes));
  const std::span<const ModeRow> more = kintsugi::filetests::graphModes();
  modes.insert(modes.end(), more.begin(), more.end());
  // Kernels are those of one machine, wherever the tests run.
  const kintsugi::TargetScope target(kintsugi::describeTarget(
      {.level = kintsugi::VectorLevel::kAvx512, .l1Bytes = 32768, .l2Bytes = 1 << 20, .cores = 2}));
  // What makes machine code, and what runs it, has runners of its own.
  constexpr std::string_view kOthers[] = {"codegen", "exec"};
  return kintsugi::filetests::runFileTests(argc, argv, KINTSUGI_FILETESTS_DIR, modes, kOthers);
}
