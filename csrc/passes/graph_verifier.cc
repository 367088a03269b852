#include "passes/graph_verifier.h"

#include <algorithm>
#include <string>

#include "passes/graph_text.h"
#include "support/check.h"
#include "support/verification.h"

namespace kintsugi::passes {

namespace {

using ir::Problem;

constexpr size_t kMaxProblems = 20;

// The number of elements of memory that sizes and strides span. Nothing: there are no elements, or a stride
// is negative.
int64_t spanOf(const std::vector<Size>& sizes, const std::vector<Size>& strides) {
  int64_t span = 1;
  for (size_t d = 0; d < sizes.size() && d < strides.size(); ++d) {
    if (sizes[d].hint == 0) {
      return 0;
    }
    span += (sizes[d].hint - 1) * strides[d].hint;
  }
  return span;
}

// From the last dimension on, each of `from` is that of `to` or 1.
bool broadcasts(const std::vector<Size>& from, const std::vector<Size>& to) {
  if (from.size() > to.size()) {
    return false;
  }
  const size_t shift = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d].hint != 1 && from[d].hint != to[d + shift].hint) {
      return false;
    }
  }
  return true;
}

class Verifier {
 public:
  Verifier(const TensorGraph& graph, const ir::Trace& trace)
      : graph_(graph), nodes_(graph.nodes), trace_(trace) {}

  std::vector<Problem> run() {
    checkOrder();
    checkInputs();
    checkOutputs();
    inOrder_ = ok_;
    // The checks below index arguments and homes.
    for (NodeId id = 0; inOrder_ && id < nodes_.size(); ++id) {
      checkArity(id);
    }
    const bool complete = ok_;
    if (complete) {
      findReads();
    }
    for (NodeId id = 0; complete && id < nodes_.size(); ++id) {
      checkTypes(id);
      checkMemory(id);
    }
    if (complete) {
      checkWrites();
    }
    return std::move(problems_);
  }

 private:
  void problem(NodeId id, std::string message) {
    ok_ = false;
    if (problems_.size() < kMaxProblems) {
      problems_.push_back({id == ir::kNone ? "graph" : "%" + std::to_string(id), std::move(message)});
    }
  }
  const Node& arg(const Node& node, size_t k) const { return nodes_[node.args[k]]; }
  static std::string named(NodeId id) { return "%" + std::to_string(id); }

  void checkOrder() {
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      for (const NodeId from : nodes_[id].args) {
        if (from >= id) {
          problem(id, "uses " + named(from) + " before it is defined");
        }
      }
      if (const NodeId home = nodes_[id].home; home != ir::kNone && home >= nodes_.size()) {
        problem(id, "its home " + named(home) + " is no node");
      }
    }
  }

  void checkInputs() {
    std::vector<uint32_t> listed(nodes_.size(), 0);
    for (const NodeId id : graph_.inputs) {
      if (id >= nodes_.size() || nodes_[id].kind != NodeKind::kInput) {
        problem(ir::kNone, "the input " + named(id) + " is none");
      } else {
        ++listed[id];
      }
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].kind == NodeKind::kInput && listed[id] != 1) {
        problem(id, "is listed " + std::to_string(listed[id]) + " times among the inputs");
      }
    }
  }

  void checkOutputs() {
    for (const NodeId id : graph_.outputs) {
      if (id != ir::kNone && id >= nodes_.size()) {
        problem(ir::kNone, "the output " + named(id) + " is no node");
      } else if (id != ir::kNone && nodes_[id].kind == NodeKind::kCall) {
        problem(id, "a call is no output, its results are");
      }
    }
    for (const Write& write : graph_.writes) {
      if (write.input >= graph_.inputs.size()) {
        problem(ir::kNone, "a write to input " + std::to_string(write.input) + ", which there is not");
      }
    }
    for (const auto& [input, times] : graph_.written) {
      if (input >= graph_.inputs.size() || times == 0) {
        problem(ir::kNone, "the input " + std::to_string(input) + " is not written to");
      }
    }
    // Until they are placed, what is written are the last outputs.
    const auto placed =
        std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.write; });
    if (graph_.writes.size() > graph_.outputs.size() + static_cast<size_t>(placed)) {
      problem(ir::kNone, "more writes than outputs that say what is written");
    }
  }

  void checkArity(NodeId id) {
    const Node& node = nodes_[id];
    const auto takes = [&](size_t count) {
      if (node.args.size() != count) {
        problem(id, "takes " + std::to_string(count) + " arguments, has " + std::to_string(node.args.size()));
      }
    };
    for (const NodeId from : node.args) {
      if (nodes_[from].kind == NodeKind::kCall && node.kind != NodeKind::kResult) {
        problem(id, "uses the call " + named(from) + ", which is no value");
      }
    }
    switch (node.kind) {
      case NodeKind::kInput:
      case NodeKind::kConst:
        return takes(0);
      case NodeKind::kPoint:
        if (node.op == Core::kCount || isReduce(node.op)) {
          return problem(id, "its operation is not pointwise");
        }
        return takes(coreInfo(node.op).arguments);
      case NodeKind::kReduce:
        if (node.op == Core::kCount || !isReduce(node.op)) {
          problem(id, "its operation does not reduce");
        }
        return takes(1);
      case NodeKind::kProduct:
        return takes(2);
      case NodeKind::kView:  // the others give the sizes, where these vary
        return node.args.empty() ? takes(1) : void();
      case NodeKind::kAttention:
        return node.attention == nullptr ? problem(id, "has no kernel") : void();
      case NodeKind::kJoin:
        return node.args.empty() ? problem(id, "joins nothing") : void();
      case NodeKind::kCall:
        return node.instruction >= trace_.code.size() ? problem(id, "is no instruction of the segment")
                                                      : void();
      case NodeKind::kResult:
        takes(1);
        return node.args.size() == 1 ? checkResult(id) : void();
    }
  }

  void checkResult(NodeId id) {
    const Node& node = nodes_[id];
    const Node& call = arg(node, 0);
    if (call.kind != NodeKind::kCall) {
      problem(id, "is the result of " + named(node.args[0]) + ", which is no call");
    } else if (call.instruction < trace_.code.size() &&
               node.result >= trace_.code[call.instruction].resultCount) {
      problem(id, "the call has no result " + std::to_string(node.result));
    }
  }

  void checkTypes(NodeId id) {
    const Node& node = nodes_[id];
    switch (node.kind) {
      case NodeKind::kPoint:
        return checkPoint(id);
      case NodeKind::kReduce:
        return checkReduce(id);
      case NodeKind::kProduct:
        if (arg(node, 0).elem != node.elem || arg(node, 1).elem != node.elem) {
          problem(id, "its arguments are of other types");
        }
        return;
      case NodeKind::kJoin:
        return checkJoin(id);
      case NodeKind::kView:
        if (arg(node, 0).elem != node.elem) {
          problem(id, "looks at elements of another type");
        }
        if (arg(node, 0).kind == NodeKind::kConst) {
          problem(id, "looks at the memory of a number, which has none");
        }
        return;
      case NodeKind::kConst:
        if (!node.sizes.empty()) {
          problem(id, "a number has no sizes");
        }
        return;
      case NodeKind::kInput:
      case NodeKind::kAttention:
      case NodeKind::kCall:
      case NodeKind::kResult:
        return;
    }
  }

  void checkPoint(NodeId id) {
    const Node& node = nodes_[id];
    for (size_t k = 0; k < node.args.size(); ++k) {
      const bool looksUp = node.op == Core::kTake || (node.op == Core::kPart && k == 0);
      if (!looksUp && !broadcasts(arg(node, k).sizes, node.sizes)) {
        problem(id, named(node.args[k]) + " is of other sizes");
      }
    }
    Elem expected = node.elem;
    size_t from = 0, to = node.args.size();
    if (!computes(node.op, isCompare(node.op) ? arg(node, 0).elem : node.elem)) {
      problem(id, "there is no code for elements of such a type");
    }
    if (isCompare(node.op)) {
      expected = arg(node, 0).elem;
      if (node.elem != Elem::kBool) {
        problem(id, "a comparison gives truth values");
      }
    } else if (node.op == Core::kSelect) {
      from = 1;
      if (arg(node, 0).elem != Elem::kBool) {
        problem(id, "selects by " + named(node.args[0]) + ", which are no truth values");
      }
    } else if (node.op == Core::kTake) {
      to = 1;
      const Elem index = arg(node, 1).elem;
      if (index != Elem::kI64 && index != Elem::kI32) {
        problem(id, "looks up at " + named(node.args[1]) + ", which are no indices");
      }
    } else if (node.op == Core::kCast) {
      // What ATen makes of numbers out of range depends on the kernel.
      if (isFloat(arg(node, 0).elem) && !isFloat(node.elem) && node.elem != Elem::kBool) {
        problem(id, "casts floats to integers");
      }
      return;
    }
    for (size_t k = from; k < to; ++k) {
      if (arg(node, k).elem != expected) {
        problem(id, named(node.args[k]) + " is of another type");
      }
    }
  }

  void checkReduce(NodeId id) {
    const Node& node = nodes_[id];
    const Node& from = arg(node, 0);
    const Elem expected = isArgReduce(node.op) ? Elem::kI64 : from.elem;
    if (node.elem != expected) {
      problem(id, "the result is of another type");
    }
    if (!computes(node.op, from.elem)) {
      problem(id, "there is no code for elements of such a type");
    }
    if (node.sizes.size() != from.sizes.size() || node.reduced + node.trailing > node.sizes.size()) {
      problem(id, "reduces dimensions that " + named(node.args[0]) + " does not have");
      return;
    }
    const size_t end = node.sizes.size() - node.trailing, begin = end - node.reduced;
    for (size_t d = 0; d < node.sizes.size(); ++d) {
      const int64_t size = d >= begin && d < end ? 1 : from.sizes[d].hint;
      if (node.sizes[d].hint != size) {
        problem(id, "dimension " + std::to_string(d) + " has another size");
      }
      // Of several dimensions that are reduced, rows are rows in memory as well.
      const bool inner = d + 1 >= end || d < begin || from.strides.size() != from.sizes.size();
      if (!inner && from.sizes[d].hint != 1 && from.sizes[d + 1].hint != 1 &&
          from.strides[d].hint != from.strides[d + 1].hint * from.sizes[d + 1].hint) {
        problem(id, "reduces dimensions of " + named(node.args[0]) + " that are no run of memory");
      }
    }
  }

  void checkJoin(NodeId id) {
    const Node& node = nodes_[id];
    if (node.dim >= node.sizes.size()) {
      problem(id, "joins along a dimension that it does not have");
      return;
    }
    int64_t joined = 0;
    for (size_t k = 0; k < node.args.size(); ++k) {
      std::vector<int64_t> sizes = hintsOf(arg(node, k).sizes), expected = hintsOf(node.sizes);
      if (arg(node, k).elem != node.elem) {
        problem(id, named(node.args[k]) + " is of another type");
      }
      const auto at = static_cast<std::ptrdiff_t>(node.dim);
      if (node.stacked) {
        expected.erase(expected.begin() + at);
        ++joined;
      } else if (node.dim < sizes.size()) {
        joined += sizes[node.dim];
        expected[node.dim] = sizes[node.dim];
      }
      if (sizes != expected) {
        problem(id, named(node.args[k]) + " is of other sizes");
      }
    }
    if (joined != node.sizes[node.dim].hint) {
      problem(id, "its arguments do not add up");
    }
  }

  void checkMemory(NodeId id) {
    const Node& node = nodes_[id];
    const bool hasMemory = node.kind != NodeKind::kConst && node.kind != NodeKind::kCall;
    if (hasMemory && node.strides.size() != node.sizes.size()) {
      problem(id, std::to_string(node.sizes.size()) + " sizes and " + std::to_string(node.strides.size()) +
                      " strides");
      return;
    }
    if (node.kind == NodeKind::kView && read_[id]) {
      checkWithin(id, memoryOf(graph_, id), "views");
    }
    if (node.kind == NodeKind::kPoint && node.op == Core::kPart) {
      checkPart(id);
    }
    if (node.home == ir::kNone) {
      return;
    }
    const Node& home = nodes_[node.home];
    if (node.write) {
      return;  // see checkWrites()
    }
    if (home.kind != NodeKind::kJoin || node.home <= id) {
      problem(id, "its home " + named(node.home) + " is no concatenation after it");
    } else if (std::none_of(home.args.begin(), home.args.end(),
                            [&](NodeId part) { return memoryOf(graph_, part).base == id; })) {
      problem(id, "its home " + named(node.home) + " does not join it");
    } else if (home.elem != node.elem) {
      problem(id, "its home is of another type");
    } else {
      checkWithin(id, {node.home, node.offset}, "lies in");
    }
  }

  // Kernels and joins allocate exactly their sizes. Inputs and results of calls may have more memory.
  static bool isOurs(const Node& node) { return isCore(node) || node.kind == NodeKind::kJoin; }

  // A part reads its view inside of the bounds. Outside of them the view may point past the memory.
  void checkPart(NodeId id) {
    const Node& node = nodes_[id];
    const Node& view = arg(node, 0);
    if (view.kind != NodeKind::kView || view.sizes.size() != view.strides.size()) {
      return;
    }
    const MemoryPlace place = memoryOf(graph_, node.args[0]);
    const Node& base = nodes_[place.base];
    int64_t first = place.offset, last = place.offset;
    for (size_t d = 0; d < view.sizes.size(); ++d) {
      int64_t low = 0, high = view.sizes[d].hint;
      for (const PartBound& bound : node.bounds) {
        if (bound.dim == d) {
          low = std::max(low, bound.low);
          high = std::min(high, bound.high);
        }
      }
      if (high <= low) {
        return;  // nothing is read
      }
      const int64_t step = view.strides[d].hint;
      first += (step < 0 ? high - 1 : low) * step;
      last += (step < 0 ? low : high - 1) * step;
    }
    if (isOurs(base) && (first < 0 || last >= spanOf(base.sizes, base.strides))) {
      problem(id, "reads " + named(place.base) + " beyond its end");
    }
  }

  // Nodes that are read, but for views by parts, within bounds.
  void findReads() {
    read_.assign(nodes_.size(), false);
    for (const Node& node : nodes_) {
      const bool part = node.kind == NodeKind::kPoint && node.op == Core::kPart;
      for (size_t k = part ? 1 : 0; k < node.args.size(); ++k) {
        read_[node.args[k]] = true;
      }
    }
    for (const NodeId id : graph_.outputs) {
      if (id != ir::kNone) {
        read_[id] = true;
      }
    }
  }

  void checkWithin(NodeId id, const MemoryPlace& place, const char* how) {
    const Node& node = nodes_[id];
    const Node& base = nodes_[place.base];
    if (!isOurs(base)) {
      return;
    }
    const int64_t span = spanOf(node.sizes, node.strides);
    if (place.offset < 0 || (span > 0 && place.offset + span > spanOf(base.sizes, base.strides))) {
      problem(id, std::string(how) + " " + named(place.base) + " beyond its end");
    }
  }

  void checkWrites() {
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const Node& node = nodes_[id];
      for (const NodeId from : node.args) {
        if (nodes_[from].write) {
          problem(id, "reads " + named(from) + ", which is stored to an input");
        }
      }
      if (!node.write) {
        continue;
      }
      const bool toInput = node.home != ir::kNone && nodes_[node.home].kind == NodeKind::kInput;
      if (node.kind != NodeKind::kPoint || !toInput) {
        problem(id, "is stored to what is no input");
      } else if (nodes_[node.home].elem != node.elem) {
        problem(id, "is stored to an input of another type");
      } else if (std::none_of(graph_.written.begin(), graph_.written.end(),
                              [&](const auto& w) { return graph_.inputs[w.first] == node.home; })) {
        problem(id, "is stored to " + named(node.home) + ", which is not said to be written to");
      }
    }
  }

  const TensorGraph& graph_;
  const std::vector<Node>& nodes_;
  const ir::Trace& trace_;
  bool ok_ = true;
  std::vector<bool> read_;
  bool inOrder_ = true;  // arguments and homes can be looked at
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> verify(const TensorGraph& graph, const ir::Trace& trace) {
  return Verifier(graph, trace).run();
}

void checkGraph(const TensorGraph& graph, const ir::Trace& trace, std::string_view pass) {
  if (!verifying()) {
    return;
  }
  const std::vector<Problem> problems = verify(graph, trace);
  KINTSUGI_CHECK(problems.empty(), "the tensor graph is not valid after ", pass, ":\n",
                 ir::formatProblems(problems), print(graph, trace));
}

}  // namespace kintsugi::passes
