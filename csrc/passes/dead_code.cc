#include "passes/dead_code.h"

#include "guard/kinds.h"
#include "ir/reach.h"
#include "passes/renumber.h"

namespace kintsugi::passes {

namespace {

class Marker {
 public:
  explicit Marker(const guard::Document& document)
      : document_(document),
        trace_(document.trace),
        walker_(trace_),
        instructions_(trace_.code.size()),
        values_(trace_.values.size()),
        sources_(document.sources.nodes.size()) {}

  Renumbering run() {
    for (const guard::Guard& guard : document_.guards.guards) {
      const guard::KindInfo& info = guard::kindInfo(guard.kind);
      if (info.has('s')) {
        needSource(guard.source);
      }
      if (info.has('t')) {
        needSource(guard.other);
      }
    }
    // Backwards: every use of a value has been seen when its definition is reached.
    const auto onValue = [this](ir::ValueId v) { values_[v] = true; };
    const auto onSource = [this](ir::SourceId s) { needSource(s); };
    for (size_t i = trace_.code.size(); i-- > 0;) {
      if (needed(trace_.code[i])) {
        instructions_[i] = true;
        keepResults(trace_.code[i]);
        walker_.instruction(trace_.code[i], onValue, onSource);
      }
    }
    return {std::move(instructions_), numberKept(values_), numberKept(walker_.seenRecipes()),
            numberKept(walker_.seenStates()), numberKept(sources_)};
  }

 private:
  bool needed(const ir::Instruction& ins) const {
    bool used = (ir::opInfo(ins.op).flags & ir::kPure) == 0;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      used = used || values_[ins.firstResult + r];
    }
    return used;
  }

  // Results are numbered one after the other, so an instruction keeps all of them or none.
  void keepResults(const ir::Instruction& ins) {
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      values_[ins.firstResult + r] = true;
    }
  }

  void needSource(ir::SourceId id) {
    while (id != ir::kNone && !sources_[id]) {
      sources_[id] = true;
      const guard::SourceNode& node = document_.sources.nodes[id];
      if (node.kind == guard::SourceKind::kValue) {
        values_[static_cast<size_t>(node.index)] = true;
      }
      id = guard::kindInfo(node.kind).has('p') ? node.parent : ir::kNone;
    }
  }

  const guard::Document& document_;
  const ir::Trace& trace_;
  ir::ReachWalker walker_;
  std::vector<bool> instructions_;
  std::vector<bool> values_;
  std::vector<bool> sources_;
};

}  // namespace

void eliminateDeadCode(guard::Document& document) { renumber(document, Marker(document).run()); }

}  // namespace kintsugi::passes
