#include "bindings/graph_testing.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/text.h"
#include "driver/plan_of_graph.h"
#include "ir/dtype.h"
#include "passes/graph_passes.h"
#include "passes/graph_text.h"
#include "passes/graph_verifier.h"
#include "runtime/native_runner.h"
#include "support/check.h"
#include "support/fork_gate.h"
#include "torchapi/value.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

using passes::Node;
using passes::NodeKind;
using torchapi::Value;

constexpr const char* kKinds[] = {"input",     "const", "point", "reduce", "product",
                                  "attention", "view",  "join",  "call",   "result"};

passes::GraphDocument parseValid(const std::string& text) {
  diag::Result<passes::GraphDocument> document = passes::parseGraph(text);
  if (!document.ok()) {
    throw nb::value_error(document.error().format().c_str());
  }
  const std::vector<ir::Problem> problems = passes::verify(document->graph, document->segment);
  if (!problems.empty()) {
    throw nb::value_error(ir::formatProblems(problems).c_str());
  }
  return std::move(document).value();
}

nb::list hints(const std::vector<passes::Size>& sizes) {
  nb::list out;
  for (const passes::Size& size : sizes) out.append(size.hint);
  return out;
}

nb::object idOrNone(passes::NodeId id) {
  return id == ir::kNone ? nb::object(nb::none()) : nb::object(nb::int_(id));
}

nb::dict describe(const Node& node) {
  nb::dict out;
  out["kind"] = kKinds[static_cast<size_t>(node.kind)];
  out["op"] = strOf(passes::coreInfo(node.op).text);
  out["elem"] = strOf(passes::elemName(node.elem));
  out["sizes"] = hints(node.sizes);
  out["strides"] = hints(node.strides);
  nb::list args;
  for (const passes::NodeId arg : node.args) args.append(arg);
  out["args"] = args;
  out["offset"] = node.offset;
  out["home"] = idOrNone(node.home);
  out["dim"] = node.dim;
  out["stacked"] = node.stacked;
  out["by_rows"] = node.byRows;
  out["reduced"] = node.reduced;
  out["trailing"] = node.trailing;
  out["write"] = node.write;
  nb::list bounds;
  for (const passes::PartBound& bound : node.bounds) {
    bounds.append(nb::make_tuple(bound.dim, bound.low, bound.high));
  }
  out["bounds"] = bounds;
  out["number"] =
      passes::isFloat(node.elem) ? nb::object(nb::float_(node.number)) : nb::object(nb::int_(node.integer));
  return out;
}

// The graph as data: `nodes`, one dict each, `inputs`, `outputs`, `writes` (input, offset, sizes, strides).
nb::dict describeGraph(const std::string& text) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  const passes::GraphDocument document = parseValid(text);
  nb::list nodes, inputs, outputs, writes;
  for (const Node& node : document.graph.nodes) nodes.append(describe(node));
  for (const passes::NodeId id : document.graph.inputs) inputs.append(id);
  for (const passes::NodeId id : document.graph.outputs) outputs.append(idOrNone(id));
  for (const passes::Write& write : document.graph.writes) {
    writes.append(nb::make_tuple(write.input, write.offset, hints(write.sizes), hints(write.strides)));
  }
  nb::dict out;
  out["nodes"] = nodes;
  out["inputs"] = inputs;
  out["outputs"] = outputs;
  out["writes"] = writes;
  return out;
}

class GraphRunner final : public runtime::NativeRunner {
 protected:
  void codeNeeded() override {}
  void replayIsFaster(uint64_t, uint64_t) override {}
  void failed(const std::string& text) override { KINTSUGI_UNREACHABLE("a check failed in a run: ", text); }
};

// A graph, compiled: its plan, and what passes and fusion made of the text.
class NativeGraph {
 public:
  NativeGraph(const std::string& text, bool simplify, bool contract) {
    const nb::gil_scoped_release released;
    passes::SizeTable sizes;
    const passes::SizeScope scope(sizes);
    passes::GraphDocument document = parseValid(text);
    if (simplify) {
      passes::simplify(document.graph, document.segment, {.contract = contract});
    } else {  // what fusion relies on
      passes::runGraphPasses({document.graph, document.segment},
                             {{passes::findGraphPass("place-parts"), passes::findGraphPass("place-writes")}});
    }
    const passes::NativeProgram program = passes::fuse(document.graph, document.segment);
    graph_ = passes::print(document.graph, document.segment);
    kernels_ = passes::print(program, document.graph, document.segment);
    driver::NativeSegmentInfo info{.segment = document.segment, .contract = contract};
    for (const passes::NodeId id : document.graph.inputs) {
      const Node& node = document.graph.nodes[id];
      info.inputs.push_back({.kind = torchapi::ValueKind::kTensor});
      inputs_.push_back({node.elem, passes::hintsOf(node.sizes), passes::hintsOf(node.strides), node.open});
    }
    std::string reason;
    const ForkGate::Inside inside(compileGate());
    auto plan = driver::planOfGraph(info, document.graph, program, {}, 0, reason);
    if (plan == nullptr) {
      throw nb::value_error(reason.c_str());
    }
    outputs_ = plan->outputs.size();
    runner_.setPlan(std::move(plan));
  }

  // None: the run declined, as the sizes are not of the kind that the graph is for, or a place was not there.
  nb::object run(nb::list tensors) {
    std::vector<Value> inputs(inputs_.size()), outputs(outputs_);
    if (tensors.size() != inputs_.size()) {
      throw nb::value_error("the graph has another number of inputs");
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      checkInput(tensors[k].ptr(), inputs_[k]);
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      inputs[k].kind = torchapi::ValueKind::kTensor;
      inputs[k].tensor = torchapi::unpackTensor(nb::object(tensors[k]).ptr());
    }
    runtime::SegmentRunner::Status status;
    {
      const nb::gil_scoped_release released;
      status = runner_.run(inputs, outputs);
    }
    for (Value& input : inputs) torchapi::clear(input);
    if (status != runtime::SegmentRunner::Status::kOk) {
      return nb::none();
    }
    nb::list out;
    for (Value& output : outputs) {
      out.append(output.kind == torchapi::ValueKind::kEmpty ? nb::object(nb::none())
                                                            : nb::steal(torchapi::box(output)));
      torchapi::clear(output);
    }
    return out;
  }

  const std::string& graph() const { return graph_; }
  const std::string& kernels() const { return kernels_; }

 private:
  struct Input {
    passes::Elem elem;
    std::vector<int64_t> sizes, strides;
    bool open;
  };

  // Kernels trust what inputs are said to be.
  static void checkInput(PyObject* object, const Input& input) {
    if (!torchapi::isTensor(object)) {
      throw nb::type_error("the inputs of a graph are tensors");
    }
    const ir::TensorDesc info = torchapi::describe(object);
    const bool typed = passes::elemOf(info.dtype) == input.elem;
    const bool sized = input.open ? info.sizes.size() == input.sizes.size()
                                  : info.sizes == input.sizes && info.strides == input.strides;
    if (!typed || !sized || !info.plain) {
      throw nb::value_error("an input is another tensor than the graph says");
    }
  }

  GraphRunner runner_;
  std::vector<Input> inputs_;
  size_t outputs_ = 0;
  std::string graph_, kernels_;
};

}  // namespace

void bindGraphTesting(nb::module_& parent) {
  nb::module_ m =
      parent.def_submodule("_graph_testing", "Tensor graphs from text; for the project's own tests.");
  m.def("describe", &describeGraph, nb::arg("text"));
  nb::class_<NativeGraph>(m, "NativeGraph")
      .def(nb::init<const std::string&, bool, bool>(), nb::arg("text"), nb::arg("simplify") = true,
           nb::arg("contract") = false)
      .def("run", &NativeGraph::run, nb::arg("tensors"))
      .def("graph", &NativeGraph::graph)
      .def("kernels", &NativeGraph::kernels);
}

}  // namespace kintsugi::bindings
