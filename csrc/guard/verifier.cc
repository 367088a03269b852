#include "guard/verifier.h"

#include <algorithm>

#include "guard/kinds.h"
#include "ir/printer.h"
#include "ir/reach.h"

namespace kintsugi::guard {

namespace {

using ir::Instruction;
using ir::Problem;

class Verifier {
 public:
  Verifier(const Document& document, ir::VerifierMode mode)
      : document_(document), trace_(document.trace), nodes_(document.sources.nodes), mode_(mode) {}

  std::vector<Problem> run() {
    problems_ = ir::verify(trace_, mode_);
    if (problems_.empty()) {
      findBlocks();
      for (size_t i = 0; i < nodes_.size(); ++i) {
        checkSource(i);
      }
      for (size_t i = 0; i < document_.guards.guards.size(); ++i) {
        checkGuard(i);
      }
    }
    if (problems_.empty()) {
      checkUses();
      checkExits();
    }
    return std::move(problems_);
  }

 private:
  void problem(std::string place, std::string message) {
    problems_.push_back({std::move(place), std::move(message)});
  }

  static std::string named(SourceId id) { return "$" + std::to_string(id); }

  // Where each block runs; block 0 runs at entry.
  void findBlocks() {
    const BlockId count = document_.guards.blockCount;
    definedAt_.assign(trace_.values.size(), ir::kNone);
    BlockId next = 1;
    for (size_t i = 0; i < trace_.code.size(); ++i) {
      const Instruction& ins = trace_.code[i];
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        definedAt_[ins.firstResult + r] = static_cast<uint32_t>(i);
      }
      if (ins.op != ir::Op::kGuardBlock) {
        continue;
      }
      const int64_t block = trace_.operandsOf(ins)[0].i;
      if (block != next) {
        problem(ir::printInstruction(trace_, i), "expected guard block " + std::to_string(next));
      }
      runsAt_.push_back(static_cast<uint32_t>(i));
      ++next;
    }
    if (next != std::max<BlockId>(count, 1) || count == 0) {
      problem("guards", std::to_string(count) + " guard blocks, but the trace runs " + std::to_string(next));
    }
  }

  void checkSource(size_t id) {
    const SourceNode& node = nodes_[id];
    const KindInfo& info = kindInfo(node.kind);
    const std::string place = named(static_cast<SourceId>(id));
    if (node.block >= std::max<BlockId>(document_.guards.blockCount, 1)) {
      problem(place, "there is no guard block " + std::to_string(node.block));
      return;
    }
    if (info.has('p')) {
      if (node.parent >= id) {
        problem(place, "its parent does not come before it");
      } else if (nodes_[node.parent].block > node.block) {
        problem(place, "its parent is resolved in a later guard block");
      }
    }
    if (info.has('k') && node.key >= trace_.constCount) {
      problem(place, "its key is no constant of the trace");
    }
    if (info.has('i') && node.index < 0) {
      problem(place, "its index is negative");
    }
    if (info.has('v')) {
      checkRoot(node, place);
    }
  }

  void checkRoot(const SourceNode& node, const std::string& place) {
    if (node.index < 0 || static_cast<uint64_t>(node.index) >= trace_.values.size()) {
      problem(place, "there is no value %" + std::to_string(node.index));
      return;
    }
    const uint32_t defined = definedAt_[static_cast<size_t>(node.index)];
    const bool known = node.block >= 1 && node.block <= runsAt_.size();
    if (!known || defined == ir::kNone || defined > runsAt_[node.block - 1]) {
      problem(place, "is resolved before %" + std::to_string(node.index) + " is defined");
    }
  }

  void checkGuard(size_t index) {
    const Guard& guard = document_.guards.guards[index];
    const KindInfo& info = kindInfo(guard.kind);
    std::string place = print(document_, guard);
    place = "guard " + place.substr(0, place.find("  ;"));
    if (guard.block >= document_.guards.blockCount) {
      problem(place, "there is no guard block " + std::to_string(guard.block));
    }
    if (info.has('s')) {
      checkGuardSource(guard, guard.source, place);
    }
    if (info.has('t')) {
      checkGuardSource(guard, guard.other, place);
    }
    if (info.has('k') && guard.key >= trace_.constCount) {
      problem(place, "there is no constant #" + std::to_string(guard.key));
    }
    if (info.has('m') && (guard.number < 0 || static_cast<uint64_t>(guard.number) >= trace_.metas.size())) {
      problem(place, "there is no meta " + std::to_string(guard.number));
    }
    if (info.has('n') && guard.number < 0) {
      problem(place, "the number is negative");
    }
  }

  void checkGuardSource(const Guard& guard, SourceId source, const std::string& place) {
    if (source >= nodes_.size()) {
      problem(place, "there is no source " + named(source));
    } else if (nodes_[source].block > guard.block) {
      problem(place, named(source) + " is resolved in block " + std::to_string(nodes_[source].block) +
                         ", after guard block " + std::to_string(guard.block));
    }
  }

  // An instruction may use the sources of the blocks that have run before it; its snapshot, too. States and
  // recipes are walked at their first use, which is the strictest.
  void checkUses() {
    ir::ReachWalker walker(trace_);
    BlockId ran = 0;
    for (size_t i = 0; i < trace_.code.size(); ++i) {
      const auto onSource = [&](SourceId source) {
        if (source >= nodes_.size()) {
          problem(ir::printInstruction(trace_, i), "there is no source " + named(source));
        } else if (nodes_[source].kind == SourceKind::kValue) {
          // Taken from where the step has put it, whether its block has run or not.
          const uint32_t defined = definedAt_[static_cast<size_t>(nodes_[source].index)];
          if (defined == ir::kNone || defined >= i) {
            problem(ir::printInstruction(trace_, i), "uses " + named(source) + " before its step has run");
          }
        } else if (nodes_[source].block > ran) {
          problem(ir::printInstruction(trace_, i),
                  "uses " + named(source) + ", which a later guard block resolves");
        }
      };
      walker.instruction(
          trace_.code[i], [](ir::ValueId) {}, onSource);
      ran += trace_.code[i].op == ir::Op::kGuardBlock ? 1 : 0;
    }
  }

  // Resolving the result of a step can't fail, anything else that a block does can.
  void checkExits() {
    std::vector<bool> canFail(document_.guards.blockCount);
    for (const Guard& guard : document_.guards.guards) {
      canFail[guard.block] = true;
    }
    for (const SourceNode& node : nodes_) {
      if (node.kind != SourceKind::kValue) {
        canFail[node.block] = true;
      }
    }
    for (size_t block = 1; block < canFail.size(); ++block) {
      const Instruction& ins = trace_.code[runsAt_[block - 1]];
      for (ir::StateId id = ins.snap; canFail[block] && id != ir::kNone; id = trace_.states[id].parent) {
        if (!trace_.states[id].rebuildable) {
          problem(ir::printInstruction(trace_, runsAt_[block - 1]),
                  "may exit where the frames can't be rebuilt");
          break;
        }
      }
    }
  }

  const Document& document_;
  const ir::Trace& trace_;
  const std::vector<SourceNode>& nodes_;
  ir::VerifierMode mode_;
  std::vector<Problem> problems_;
  std::vector<uint32_t> definedAt_;
  std::vector<uint32_t> runsAt_;  // by block - 1: the instruction that runs it
};

}  // namespace

std::vector<Problem> verify(const Document& document, ir::VerifierMode mode) {
  return Verifier(document, mode).run();
}

}  // namespace kintsugi::guard
