#include "filetests/graph_modes.h"

#include <sstream>
#include <vector>

#include "passes/graph_passes.h"
#include "passes/graph_verifier.h"
#include "passes/kernel_text.h"
#include "passes/plan_text.h"

namespace kintsugi::filetests {

namespace {

std::string problemsOf(const passes::GraphDocument& document) {
  return ir::formatProblems(passes::verify(document.graph, document.segment));
}

std::string runGraph(std::string_view, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  const diag::Result<passes::GraphDocument> document = passes::parseGraph(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  const std::string problems = problemsOf(*document);
  return (problems.empty() ? "" : unexpected(problems)) + printGraphChecked(*document);
}

// What is wrong with the text, or else with the graph.
std::string runGraphError(std::string_view, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  const diag::Result<passes::GraphDocument> document = passes::parseGraph(input);
  if (!document.ok()) {
    return syntaxError(document.error());
  }
  const std::string problems = problemsOf(*document);
  return problems.empty() ? unexpected("the graph is valid") : problems;
}

// `drop-copies,merge-equal`; `all`: the whole pipeline; `contract`: what comes behind it may round otherwise.
std::string runGraphPass(std::string_view argument, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  diag::Result<passes::GraphDocument> document = passes::parseGraph(input);
  if (!document.ok()) {
    return unexpected(document.error().format());
  }
  if (const std::string before = problemsOf(*document); !before.empty()) {
    return unexpected("the input is not valid: " + before);
  }
  passes::GraphPassOptions options;
  std::stringstream names{std::string(argument)};
  for (std::string name; std::getline(names, name, ',');) {
    const passes::GraphPass* pass = passes::findGraphPass(name);
    if (name == "contract") {
      options.contract = true;
    } else if (name == "all") {
      passes::simplify(document->graph, document->segment, options);
    } else if (pass != nullptr) {
      passes::runGraphPasses({document->graph, document->segment, options}, {{pass}});
    } else {
      return unexpected("unknown pass " + name);
    }
  }
  const std::string after = problemsOf(*document);
  return (after.empty() ? "" : unexpected(after)) + printGraphChecked(*document);
}

std::string runKernel(std::string_view, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  ir::Cursor cursor(input);
  std::string out;
  passes::appendKernel(out, passes::readKernel(cursor));
  return cursor.failed() ? syntaxError(cursor.diagnostic()) : out + "\n";
}

// The plan, if it is valid, else what is wrong with it.
std::string runPlan(std::string_view, std::string_view input) {
  const diag::Result<passes::PlanFlow> plan = passes::parsePlan(input);
  if (!plan.ok()) {
    return syntaxError(plan.error());
  }
  const std::string text = passes::print(*plan);
  const diag::Result<passes::PlanFlow> again = passes::parsePlan(text);
  if (!again.ok() || passes::print(*again) != text) {
    return unexpected("the printed text is another plan") + text;
  }
  const std::string problems = ir::formatProblems(passes::verify(*plan));
  return problems.empty() ? text : problems;
}

constexpr ModeRow kModes[] = {
    {"graph", runGraph}, {"graph-error", runGraphError}, {"graph-pass", runGraphPass}, {"kernel", runKernel},
    {"plan", runPlan},
};

}  // namespace

std::span<const ModeRow> graphModes() { return kModes; }

std::string printGraphChecked(const passes::GraphDocument& document) {
  const std::string whole = passes::print(document);
  {
    passes::SizeTable sizes;
    const passes::SizeScope scope(sizes);
    const diag::Result<passes::GraphDocument> again = passes::parseGraph(whole);
    if (!again.ok()) {
      return unexpected("the printed text does not parse: " + again.error().format()) + whole;
    }
    if (const std::string text = passes::print(*again); text != whole) {
      return unexpected("the printed text is another graph") + whole + text;
    }
  }
  return passes::print(document.graph, document.segment);
}

}  // namespace kintsugi::filetests
