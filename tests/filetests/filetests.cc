// The runner of the file tests: IR text in, text out. One file is one test of one behaviour.
//
//   ; test: pass=guard-dedup
//   ; What this file shows, in a sentence.
//   trace @f.py:1 f { ... }
//   ; expect:
//   ... what comes out, to the end of the file
//
// The tests are the rows of kModes below; docs/internals/ir.md lists them. With KINTSUGI_BLESS=1 in the
// environment a test that differs rewrites its expectation instead of failing; the diff is then reviewed like
// code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "guard/source_roots.h"
#include "guard/verifier.h"
#include "ir/liveness.h"
#include "ir/printer.h"
#include "ir/segments.h"
#include "passes/build_graph.h"
#include "passes/channels_last.h"
#include "passes/extract_segment.h"
#include "passes/fold_convolutions.h"
#include "passes/fuse.h"
#include "passes/own_writes.h"
#include "passes/pass_manager.h"
#include "passes/simplify_graph.h"
#include "passes/split_gradients.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTestMark = "; test:";
constexpr std::string_view kExpectMark = "; expect:\n";

// A mode gets the argument behind `=` and the input, and returns what the expectation is compared with. A
// problem that no expectation may contain starts with `!`.
using Mode = std::string (*)(std::string_view argument, std::string_view input);

std::string unexpected(const std::string& what) { return "! " + what + "\n"; }

std::string syntaxError(const diag::Diagnostic& diagnostic) {
  return diagnostic.args[0] + ":" + diagnostic.args[1] + ": " + diagnostic.args[2] + "\n";
}

std::optional<ir::VerifierMode> verifierMode(std::string_view name) {
  if (name.empty() || name == "recorded") {
    return ir::VerifierMode::kRecorded;
  }
  if (name == "optimized") {
    return ir::VerifierMode::kOptimized;
  }
  if (name == "lowered") {
    return ir::VerifierMode::kLowered;
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
    if (name == "all") {
      manager.addAll();
    } else if (pass != nullptr) {
      manager.add(*pass);
    } else {
      return unexpected("unknown pass " + name);
    }
  }
  manager.setVerify(true).run(*document);
  const bool lowered = argument.ends_with("dead-code") || argument.ends_with("all");
  const auto mode = lowered ? ir::VerifierMode::kLowered : ir::VerifierMode::kOptimized;
  const std::string after = ir::formatProblems(guard::verify(*document, mode));
  return (after.empty() ? "" : unexpected(after)) + printChecked(*document);
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
std::vector<ir::TensorMeta> seenMetas(const ir::Trace& trace) {
  std::vector<ir::TensorMeta> metas = trace.metas;
  for (ir::TensorMeta& meta : metas) {
    for (size_t d = 0; d < meta.sizes.size(); ++d) {
      meta.sizes[d] = meta.sizes[d] == ir::kAnySize ? static_cast<int64_t>(10 + d) : meta.sizes[d];
    }
  }
  return metas;
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
    std::vector<ir::TensorMeta> seen = seenMetas(segment);
    passes::gatherOwnWrites(segment, seen, passes::traitsByName);
    auto graph = passes::buildGraph(
        segment, {.strict = argument == "strict", .products = argument == "products", .seen = seen}, reason);
    if (!graph) {
      out += "refused: " + reason + "\n";
      continue;
    }
    passes::simplify(*graph, segment, {.contract = argument == "contract"});
    out += kernels ? passes::print(passes::fuse(*graph), *graph, segment) : passes::print(*graph, segment);
    for (const passes::SizeCheck& check : sizes.checks()) {
      out += "requires " + sizes.text(check.difference) + ((check.signs & passes::kLess) != 0 ? " <" : " ") +
             ((check.signs & passes::kMore) != 0 ? ">" : "") +
             ((check.signs & passes::kZero) != 0 ? "= 0\n" : " 0\n");
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
std::string runGradients(std::string_view, std::string_view input) {
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
    out += std::string(title) + "\n" + passes::print(*graph, segment);
  };
  for (const ir::SegmentRange& range : ir::findSegments(trace)) {
    std::string reason;
    const auto graph = passes::differentiate(passes::extractSegment(trace, range), {}, reason);
    if (!graph) {
      out += "refused: " + reason + "\n";
      continue;
    }
    const passes::TrainingSegments parts = passes::splitGradients(*graph);
    print("forward", parts.forward);
    out += "kept";
    constexpr std::string_view kFrom[] = {"input", "output", "own"};
    for (const passes::TrainingSegments::Kept& kept : parts.kept) {
      out += " " + std::string(kFrom[static_cast<size_t>(kept.from)]) + " " + std::to_string(kept.index);
    }
    out += "\n";
    print("backward", parts.backward);
    if (!graph->epilogue.empty()) {
      print("epilogue", parts.epilogue);
    }
  }
  return out;
}

// Each segment with its convolutions folded and the channels last; `ARGUMENT` folded: the former only.
std::string runConvolutions(std::string_view argument, std::string_view input) {
  const diag::Result<guard::Document> document = guard::parse(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  std::string out;
  for (const ir::SegmentRange& range : ir::findSegments(document->trace)) {
    ir::Trace segment = passes::extractSegment(document->trace, range);
    std::vector<ir::TensorMeta> seen = segment.metas;
    const bool changed =
        passes::foldConvolutions(segment) && (argument == "folded" || passes::putChannelsLast(segment, seen));
    out += changed ? ir::print(segment) : "unchanged\n";
  }
  return out;
}

struct ModeRow {
  std::string_view name;
  Mode run;
};

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
    {"convolutions", runConvolutions},
};

struct FileText {
  std::string mode;
  std::string argument;
  std::string input;  // comments included, so that positions in errors are those of the file
  std::string expected;
  bool hasExpected = false;
};

std::string readFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

FileText split(const std::string& text) {
  FileText file;
  const size_t mark = text.rfind("\n" + std::string(kExpectMark));
  file.hasExpected = mark != std::string::npos;
  file.input = text.substr(0, file.hasExpected ? mark + 1 : text.size());
  file.expected = file.hasExpected ? text.substr(mark + 1 + kExpectMark.size()) : "";
  if (text.starts_with(kTestMark)) {
    std::string test = text.substr(kTestMark.size(), text.find('\n') - kTestMark.size());
    std::erase(test, ' ');
    const size_t equals = test.find('=');
    file.mode = test.substr(0, equals);
    file.argument = equals == std::string::npos ? "" : test.substr(equals + 1);
  }
  return file;
}

bool blessing() {
  const char* value = std::getenv("KINTSUGI_BLESS");
  return value != nullptr && std::string_view(value) == "1";
}

void runFile(const fs::path& path) {
  const FileText file = split(readFile(path));
  const auto* row = std::find_if(std::begin(kModes), std::end(kModes),
                                 [&](const ModeRow& mode) { return mode.name == file.mode; });
  ASSERT_NE(row, std::end(kModes)) << path << ": the first line has to name a test: `; test: roundtrip`";
  const std::string actual = row->run(file.argument, file.input);
  ASSERT_FALSE(actual.starts_with("!")) << path << "\n" << actual;
  if (actual == file.expected) {
    return;
  }
  if (blessing()) {
    std::ofstream(path, std::ios::binary) << file.input << kExpectMark << actual;
    std::cout << "blessed " << path.string() << "\n";
    return;
  }
  EXPECT_EQ(file.expected, actual) << path << (file.hasExpected ? "" : "\nThe file has no expectation yet.")
                                   << "\nKINTSUGI_BLESS=1 rewrites it (make bless).";
}

class FileTest : public testing::Test {
 public:
  explicit FileTest(fs::path path) : path_(std::move(path)) {}
  void TestBody() override { runFile(path_); }

 private:
  fs::path path_;
};

size_t registerTests(const fs::path& root) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".ktir") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::string suite = fs::relative(path.parent_path(), root).generic_string();
    testing::RegisterTest(suite.c_str(), path.stem().string().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [path]() -> testing::Test* { return new FileTest(path); });
  }
  return paths.size();
}

}  // namespace
}  // namespace kintsugi

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::filesystem::path root = argc > 1 ? argv[1] : KINTSUGI_FILETESTS_DIR;
  if (!std::filesystem::is_directory(root) || kintsugi::registerTests(root) == 0) {
    std::cerr << "no file tests under " << root << "\n";
    return 1;
  }
  return RUN_ALL_TESTS();
}
