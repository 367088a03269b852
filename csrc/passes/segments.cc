#include "passes/segments.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "guard/shown_values.h"
#include "ir/quiet_ops.h"
#include "ir/segment_stops.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/build_graph.h"
#include "passes/built_objects.h"
#include "passes/fresh_writes.h"
#include "passes/gradient_cuts.h"
#include "passes/gradient_graph.h"
#include "passes/name_segments.h"
#include "passes/own_writes.h"
#include "passes/part_writes.h"
#include "passes/regions.h"
#include "passes/requires_grad.h"
#include "passes/seen_values.h"
#include "passes/size_decisions.h"
#include "passes/waiting_writes.h"
#include "passes/write_counts.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::SourceId;
using ir::TypeKind;
using ir::ValueId;

constexpr uint32_t kOutside = ir::kNone;
// Cutting is begun anew where a segment has turned out to end too late; so often at most. Each time, some
// segment ends earlier; with more rounds a trace that keeps finding such ends takes longer to compile, with
// fewer its later part is left to replay.
constexpr int kPasses = 8;

}  // namespace

OperatorTraits traitsByName(std::string_view name) {
  OperatorTraits traits;
  traits.writes = ops::isInPlace(name);
  const bool random = ops::has(name, ops::Trait::kRandom);
  traits.impure = traits.writes || random;
  traits.draws = random && !traits.writes;
  traits.drawsInto = random && traits.writes;
  traits.sizesOfData = ops::has(name, ops::Trait::kSizesOfData);
  traits.inGraph = !traits.sizesOfData;
  traits.replayed = ops::isCollective(name);
  traits.impure = traits.impure || traits.replayed;
  return traits;
}

bool readsNumber(const ir::Trace& trace, const Instruction& ins) {
  if (trace.operatorOf(ins) != ops::Operator::kItem || ins.resultCount != 1) {
    return false;
  }
  const TypeKind made = trace.values[ins.firstResult].kind;
  const Operand& from = trace.operandsOf(ins)[0];
  if ((made != TypeKind::kFloat && made != TypeKind::kInt) || !from.isValue() ||
      !trace.hasFixedSizes(trace.values[from.id])) {
    return false;
  }
  const ir::TensorDesc& meta = trace.metas[trace.values[from.id].meta];
  using ir::DType;
  const DType dtype = meta.dtype;
  return std::all_of(meta.sizes.begin(), meta.sizes.end(), [](int64_t size) { return size == 1; }) &&
         compilesFor(meta.device) && !meta.requiresGrad &&
         (made == TypeKind::kFloat ? dtype == DType::kF32 || dtype == DType::kF64
                                   : dtype == DType::kI32 || dtype == DType::kI64);
}

namespace {

class Cutter {
 public:
  Cutter(guard::Document& document, const SegmentOptions& options)
      : document_(document),
        trace_(document.trace),
        traits_(options.traits),
        start_(options.start),
        native_(options.native),
        limits_(options.gradients),
        seen_(document.trace),
        writes_(document.trace),
        own_(document.trace, options.traits),
        fresh_(document.trace, options.traits),
        waiting_(document.trace, options.traits),
        madeIn_(trace_.values.size(), kOutside),
        madeAt_(trace_.values.size(), kOutside),
        canFail_(std::max<size_t>(1, document.guards.blockCount)),
        late_(trace_.values.size()),
        insideBlock_(canFail_.size()),
        lateBlock_(canFail_.size()) {}

  // Where the part of the trace that was cut begins. Nothing: the instructions that were added to the cuts
  // have to begin a segment of their own; the trace is as it was. `wary`: what frames hold counts as shown.
  std::optional<uint32_t> run(std::set<uint32_t>& seenCuts, bool wary) {
    wary_ = wary;
    for (const guard::Guard& guard : document_.guards.guards) {
      canFail_[guard.block] = true;
    }
    for (const guard::SourceNode& node : document_.sources.nodes) {
      canFail_[node.block] = canFail_[node.block] || node.kind != guard::SourceKind::kValue;
    }
    if (!native_) decisions_ = findSizeDecisions(trace_, traits_);
    findFeeding();
    findAnswers();
    findApart();
    placeRegions();
    const auto own = std::span(trace_.code).subspan(start_);
    const std::vector<bool> cuts = gradientCuts(trace_, start_, native_ ? limits_ : ir::GradientLimits{});
    at_ = start_;
    keepParent();
    for (const Instruction& ins : own) {
      if ((cuts[at_] || seenCuts.contains(at_)) && !body_.empty()) {
        close();
      }
      placeByRegion(ins, at_);
      ++at_;
    }
    close();
    if (!wanted_.empty()) {
      seenCuts.insert(wanted_.begin(), wanted_.end());
      return std::nullopt;
    }
    dropSnapshotOfReturn();
    nameSegmentValues(trace_, out_, {std::move(graph_), std::move(framed_), count_, start_});
    trace_.code = std::move(out_);
    return start_;
  }

 private:
  enum class InRegion : uint8_t { kNo, kWhole, kApart };

  struct Placed {
    Instruction instruction;
    bool inGraph = false;
    bool writes = false;  // of the graph: see writesSomething() and isDraw()
    bool draws = false;
  };

  // The values that operators and decisions of a graph use, at once or through scalar arithmetic.
  void findFeeding() {
    feeding_.assign(trace_.values.size(), false);
    std::vector<ValueId> used;
    for (size_t i = trace_.code.size(); i-- > 0;) {
      const Instruction& ins = trace_.code[i];
      const bool scalar = ir::isGraphOp(ins.op) && ins.resultCount == 1 && feeding_[ins.firstResult];
      if (ins.op == Op::kAten || ins.op == Op::kSetGrad || scalar || isBySymbols(ins)) {
        used.clear();
        ir::collectValues(trace_, trace_.operandsOf(ins), used);
        for (const ValueId value : used) {
          feeding_[value] = true;
        }
      }
    }
  }

  // The result of aten.data shares memory with its argument, but not the version counter. In native code it
  // would be the argument itself. That is right if nothing writes through it and it does not leave the
  // segment.
  void findApart() {
    apart_.assign(trace_.values.size(), false);
    const auto givesData = [this](const Instruction& ins) {
      return ins.op == Op::kAten && trace_.operatorOf(ins) == ops::Operator::kData;
    };
    if (!native_ || std::none_of(trace_.code.begin(), trace_.code.end(), givesData)) {
      return;
    }
    std::vector<ValueId> dataOf(trace_.values.size(), kOutside);
    std::vector<ValueId> used;
    for (const Instruction& ins : trace_.code) {
      if (ins.op != Op::kAten) {
        continue;
      }
      const OperatorTraits traits = traits_(trace_.opNames[ins.opName]);
      ValueId from = givesData(ins) ? ins.firstResult : kOutside;
      used.clear();
      ir::collectValues(trace_, trace_.operandsOf(ins), used);
      for (const ValueId value : used) {
        if (dataOf[value] == kOutside) {
          continue;
        }
        apart_[dataOf[value]] = apart_[dataOf[value]] || isImpure(ins);
        from = from == kOutside && !traits.fresh ? dataOf[value] : from;
      }
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        dataOf[ins.firstResult + r] = from;
      }
    }
    for (ValueId value = 0; value < dataOf.size(); ++value) {
      if (dataOf[value] != kOutside && seen_.isSeen(value)) {
        apart_[dataOf[value]] = true;
      }
    }
  }

  // Does autograd go from what it makes to a tensor of the segment that the program gets to see? Frames that
  // hold it decide when the segment ends.
  bool derivesFromSeen(const Instruction& ins) {
    if (ins.op != Op::kAten || ins.resultCount == 0) {
      return false;
    }
    bool made = false;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      made = made || requiresGrad(trace_, ins.firstResult + r);
    }
    if (!made) {
      return false;
    }
    const bool write = writesToFirst(trace_, ins);
    const auto operands = trace_.operandsOf(ins);
    std::vector<ValueId> used;
    ir::collectValues(trace_, operands.subspan(write ? 1 : 0), used);
    std::erase_if(used, [&](ValueId value) {
      return madeIn_[value] != count_ || !requiresGrad(trace_, value) ||
             (write && seen_.origin(value) == seen_.origin(operands[0].id));
    });
    if (std::ranges::any_of(used, [&](ValueId v) { return wary_ ? seen_.isSeen(v) : seen_.isShown(v); })) {
      return true;
    }
    for (const ValueId value : used) {
      if (const auto last = seen_.lastFrame(value)) seenCuts_.add(madeAt_[value], at_, *last);
    }
    return false;
  }

  // A parent's segment that was left in the middle, at a guard, is none in the side trace.
  void keepParent() {
    const auto parent = std::span(trace_.code).first(start_);
    uint32_t left = kOutside;
    for (uint32_t i = 0; i < parent.size(); ++i) {
      left = parent[i].op == Op::kSegment ? i : parent[i].op == Op::kSegmentEnd ? kOutside : left;
    }
    start_ -= left != kOutside ? 1 : 0;
    bool open = false;
    for (uint32_t i = 0; i < parent.size(); ++i) {
      const Instruction& ins = parent[i];
      if (i == left) {
        continue;
      }
      open = ins.op == Op::kSegment || (open && ins.op != Op::kSegmentEnd);
      emit(ins, open && ir::isInGraph(ins) ? count_ : kOutside);
      count_ += ins.op == Op::kSegmentEnd ? 1 : 0;
    }
  }

  // Where regions are is decided once: a graph holds both ends of one, or nothing of it.
  void placeRegions() {
    inRegion_.assign(trace_.code.size(), InRegion::kNo);
    const auto mayBeInside = [this](const Instruction& ins) {
      const bool anySize = ins.op == Op::kAten && traits_(trace_.opNames[ins.opName]).sizesOfData;
      return !native_ && !anySize && !decisions_.byData[indexOf(ins)] &&
             (isGraph(ins) || ins.op == Op::kInput || isSilent(ins) || isBySymbols(ins));
    };
    for (const Region& region : findRegions(trace_, start_, mayBeInside)) {
      const size_t size = trace_.code.size();
      size_t end = std::min<size_t>(region.closes + 1, size);
      end += end < size && trace_.code[end].op == Op::kGuardBlock ? 1 : 0;
      for (size_t i = region.opens; !native_ && i < end; ++i) {
        inRegion_[i] = region.whole ? InRegion::kWhole : InRegion::kApart;
      }
      closes_[region.opens] = region.closes;
    }
  }

  // Would something in the region have to be in another segment than the one that is open?
  bool needsAnother(uint32_t opens) const {
    const auto begin = trace_.code.begin();
    return std::any_of(begin + opens, begin + closes_.at(opens), [this](const Instruction& ins) {
      const bool lateInput =
          ins.op == Op::kInput && lateBlock_[document_.sources.nodes[trace_.operandsOf(ins)[0].id].block];
      return lateInput || ((deferred_ || waits_) && isImpure(ins)) || (acts_ && ins.op == Op::kSetGrad) ||
             ((isGraph(ins) || isBySymbols(ins)) && usesLate(ins));
    });
  }

  // May it be done later without any difference? Scalars that no operator uses, objects whose making runs no
  // code, and look-ups.
  bool isSilent(const Instruction& ins) const {
    return (ir::isGraphOp(ins.op) && ins.op != Op::kAten) || ir::isLookup(ins) ||
           (ins.op == Op::kBuild && isQuietBuild(trace_, trace_.operandsOf(ins)[0]));
  }

  void placeByRegion(const Instruction& ins, size_t at) {
    const bool end = ins.region != ir::RegionMark::kNone;
    if (inRegion_[at] == InRegion::kNo) {
      lastEnd_ = ir::RegionMark::kNone;
      place(ins);
    } else if (inRegion_[at] == InRegion::kApart) {
      close();
      emit(ins, kOutside);
    } else if (end || (ins.op == Op::kGuardBlock && lastEnd_ != ir::RegionMark::kNone)) {
      if (ins.region == ir::RegionMark::kOpens && needsAnother(static_cast<uint32_t>(at))) {
        close();
      }
      body_.push_back({ins, true});
      body_.back().instruction.region = end ? ins.region : lastEnd_;
      graphEnd_ = body_.size();
      lastEnd_ = ins.region;
    } else {
      lastEnd_ = ir::RegionMark::kNone;
      placeInside(ins);
    }
  }

  void placeInside(const Instruction& ins) {
    if (ins.op == Op::kInput) {
      placeInput(ins);
    } else if (isGraph(ins) || isBySymbols(ins)) {
      addToGraph(ins, isImpure(ins));
    } else {  // silent
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        late_[ins.firstResult + r] = true;
      }
      body_.push_back({ins, false});
      body_.back().instruction.deferrable = ins.deferrable || ins.op != Op::kBuild;
    }
  }

  void place(const Instruction& ins) {
    if (native_ ? runsPython(at_) : decisions_.byData[at_]) {
      close();
      emit(ins, kOutside);
    } else if (body_.empty()) {
      placeOutside(ins);
    } else if (ins.op == Op::kInput) {
      placeInput(ins);
    } else if (isStep(ins)) {
      fresh_.stop();
      body_.push_back({ins, true});
      deferred_ = true;  // nothing is written after a step that may leave
    } else if (ins.op == Op::kGuardBlock && ir::isStop(body_.back().instruction) && body_.back().inGraph) {
      insideBlock_[static_cast<size_t>(trace_.operandsOf(ins)[0].i)] = body_.size() + 1;
      body_.push_back({ins, false});
    } else if (isGraph(ins)) {
      const bool writes = writesSomething(ins);
      const bool early = (deferred_ && writes) || (waits_ && writes && !waiting_.allows(ins)) ||
                         ((deferred_ || waits_) && runsPython(at_));
      if (usesLate(ins) || early || (acts_ && ins.op == Op::kSetGrad) || (native_ && needsCut(ins))) {
        close();
        placeOutside(ins);  // what writes to a tensor of the segment before is no part of this one
      } else {
        addToGraph(ins, writes);
      }
    } else if (isCheckedInside(ins)) {
      addToGraph(ins, false);
      guarded_ = true;
    } else if (isBySymbols(ins) && operators_ > 0 && !usesLate(ins)) {
      addToGraph(ins, false);
    } else if (isDeferrable(ins) && (native_ || isBare(ins) || waits(ins) || fresh_.defer(ins))) {
      defer(ins);
    } else {
      close();
      emit(ins, kOutside);
    }
  }

  // Has the operator run Python code of the program, which native code would not call? Then a guard block
  // stands behind it, and behind all that the same instruction of the program has called.
  bool runsPython(uint32_t at) const {
    const uint32_t first = at;
    const auto& code = trace_.code;
    while (at < code.size() && code[at].op == Op::kAten && code[at].snap == code[first].snap) {
      ++at;
    }
    return at != first && at < code.size() && code[at].op == Op::kGuardBlock;
  }

  void placeOutside(const Instruction& ins) {
    if (isGraph(ins)) {
      addToGraph(ins, writesSomething(ins));
    } else {
      emit(ins, kOutside);
    }
  }

  // An input is there as soon as its guard block has passed.
  void placeInput(const Instruction& ins) {
    const ir::SourceId source = trace_.operandsOf(ins)[0].id;
    if (const size_t behind = insideBlock_[document_.sources.nodes[source].block]; behind != 0) {
      late_[ins.firstResult] = !ir::isOfGraphs(trace_.values[ins.firstResult].kind);
      body_.insert(body_.begin() + static_cast<std::ptrdiff_t>(behind), {ins, false});
      moveStops(behind);
    } else if (lateBlock_[document_.sources.nodes[source].block]) {
      late_[ins.firstResult] = true;
      body_.push_back({ins, false});
    } else {
      emit(ins, kOutside);
    }
  }

  // What is in the open segment from `at` on has moved by one.
  void moveStops(size_t at) {
    graphEnd_ += graphEnd_ > at ? 1 : 0;
    for (size_t& behind : insideBlock_) {
      behind += behind > at ? 1 : 0;
    }
  }

  // A modelled call in the middle of an FX graph, which stops for it. Not behind writes to older tensors: a
  // backend may count them otherwise than eager mode, and the call may ask for versions.
  bool isStep(const Instruction& ins) const {
    return !native_ && ir::isStop(ins) && operators_ > 0 && !impure_;
  }

  bool isGraph(const Instruction& ins) const {
    if (!ir::isGraphOp(ins.op)) {
      return false;
    }
    if (ins.op != Op::kAten) {
      // A counter that no operator sees would only make the graph another one in each run.
      return ins.op == Op::kSetGrad || feeding_[ins.firstResult];
    }
    if (isRead(ins)) {
      return true;
    }
    const OperatorTraits traits = traits_(trace_.opNames[ins.opName]);
    if (native_ && trace_.operatorOf(ins) == ops::Operator::kData && apart_[ins.firstResult]) {
      return false;
    }
    const bool anySize = !native_ && traits.sizesOfData;  // an FX graph may leave sizes to its run
    if ((!traits.inGraph && !anySize) || (native_ && traits.replayed) ||
        (native_ && traits.writes && !mayBeWrite(trace_.opNames[ins.opName]) &&
         !own_.canFunctionalize(ins))) {
      return false;
    }
    if (!native_ && mayResize(ins)) return false;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ir::Type& type = trace_.values[ins.firstResult + r];
      const bool sized = !native_ || !traits.sizesFromMask || trace_.hasFixedSizes(type);
      if ((type.kind != TypeKind::kTensor && type.kind != TypeKind::kNone) || !sized) {
        return false;  // a number read from data
      }
    }
    return true;
  }

  // A result that is stored may have another size where data decides. A replay warns as the program does.
  bool mayResize(const Instruction& ins) const {
    if (!storesResults(trace_.opNames[ins.opName])) return false;
    std::vector<bool> sizedByData(trace_.values.size(), false);
    std::vector<ValueId> values;
    for (const Instruction& maker : trace_.code) {
      if (maker.op != Op::kAten) continue;
      const OperatorTraits traits = traits_(trace_.opNames[maker.opName]);
      values.clear();
      ir::collectValues(trace_, trace_.operandsOf(maker), values);
      const bool sized = traits.sizesOfData || traits.sizesFromMask ||
                         std::ranges::any_of(values, [&](ValueId value) { return sizedByData[value]; });
      const std::string_view name = trace_.opNames[maker.opName];
      if (maker.opName == ins.opName && maker.firstResult == ins.firstResult) return sized;
      if (sized && storesResults(name)) {  // what it stores in has the other size from here on
        for (const ValueId value : values) sizedByData[value] = true;
      }
      for (uint32_t r = 0; r < maker.resultCount; ++r) {
        const ValueId made = maker.firstResult + r;
        sizedByData[made] = sized && !trace_.hasFixedSizes(trace_.values[made]);
      }
    }
    return false;
  }

  bool needsCut(const Instruction& ins) {
    return own_.needsCut(ins) || (!own_.canFunctionalize(ins) && writes_.needsCut(ins)) ||
           ((guarded_ || reads_) && follows(ins)) || (followed_ && isRead(ins)) || derivesFromSeen(ins);
  }

  // Does autograd follow what it makes? Not of writes to what was there before, which no run takes while the
  // grad mode is on.
  bool follows(const Instruction& ins) const {
    if (!isFollowed(trace_, ins)) {
      return false;
    }
    const std::string_view name = trace_.opNames[ins.opName];
    const auto operands = trace_.operandsOf(ins);
    return !ops::isInPlace(name) || operands.empty() || !operands[0].isValue() ||
           madeIn_[operands[0].id] == count_;
  }

  // A number that operators compute with. What autograd follows is compiled for numbers that stay the same.
  bool isRead(const Instruction& ins) const {
    return native_ && readsNumber(trace_, ins) && feeding_[ins.firstResult];
  }

  // Native code checks results of calls, and knows what it computes: a guard of all metadata of a tensor
  // that the segment makes ends nothing. Not in training, where segments are run otherwise.
  bool isCheckedInside(const Instruction& ins) const {
    if (!native_ || ins.op != Op::kGuardMeta || followed_ || operators_ == 0 || usesLate(ins)) {
      return false;
    }
    const auto operands = trace_.operandsOf(ins);
    const ir::TensorDesc& meta = trace_.metas[static_cast<size_t>(operands[1].i)];
    return operands[0].isValue() && madeIn_[operands[0].id] == count_ && meta.isFixed() &&
           !meta.requiresGrad && compilesFor(meta.device) && elemOf(meta.dtype) != Elem::kOther;
  }

  bool isImpure(const Instruction& ins) const {
    return ins.op == Op::kAten && ir::isImpure(trace_, ins, traits_(trace_.opNames[ins.opName]).impure);
  }

  // Is the graph, with it, none that can be run again? An FX graph may write to tensors of its own. Numbers
  // can be drawn again, in front of which the generator is put back (runtime/run_segments.cc).
  bool writesSomething(const Instruction& ins) const {
    return isImpure(ins) && !isDraw(ins) && (native_ || !fresh_.isContainedWrite(ins));
  }

  // Does it draw from the processor's default generator, and write to nothing else than tensors of the graph?
  bool isDraw(const Instruction& ins) const {
    if (ins.op != Op::kAten || ins.resultCount == 0) {
      return false;
    }
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ir::Type& type = trace_.values[ins.firstResult + r];
      if (type.kind != TypeKind::kTensor || type.meta == ir::kNone ||
          !trace_.metas[type.meta].device.isCpu()) {
        return false;
      }
    }
    const OperatorTraits traits = traits_(trace_.opNames[ins.opName]);
    return traits.draws || (traits.drawsInto && !native_ && fresh_.isContainedWrite(ins));
  }

  bool usesLate(const Instruction& ins) const {
    std::vector<ValueId> used;
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
    return std::any_of(used.begin(), used.end(), [this](ValueId v) { return late_[v]; });
  }

  // Looks something up, or makes an object without running code of the program, so the moment makes no
  // difference.
  bool isBare(const Instruction& ins) const {
    return ir::isLookup(ins) ||
           (!native_ && ins.op == Op::kBuild && isQuietBuild(trace_, trace_.operandsOf(ins)[0]));
  }

  bool isDeferrable(const Instruction& ins) const {
    if (isBare(ins)) {
      return true;
    }
    if (impure_ && native_) {
      return false;
    }
    if (ins.op == Op::kGuardBlock) {
      // The results of a deferred step are taken over where the step is.
      return !canFail_[static_cast<size_t>(trace_.operandsOf(ins)[0].i)] && !body_.back().inGraph;
    }
    if (isSpeculated(ins) || isQuestion(ins)) {
      // Before there is anything to compute it is asked at once. Behind random numbers another answer is
      // likely, and then they would be drawn again.
      return !native_ && operators_ > 0 && !draws_ && waiting_.mayAsk();
    }
    return ins.deferrable || (ir::isGraphOp(ins.op) && ins.op != Op::kAten) ||
           (ins.op == Op::kBuild && isPlainBuild(trace_, trace_.operandsOf(ins)[0]));
  }

  // A decision on contents, or what reads the numbers for it, in a graph for an FX backend.
  bool waits(const Instruction& ins) const { return !native_ && (isSpeculated(ins) || isQuestion(ins)); }

  // A guard on sizes in the middle of an FX graph: decided when the graph is compiled.
  bool isBySymbols(const Instruction& ins) const { return !native_ && decisions_.bySymbols[indexOf(ins)]; }
  size_t indexOf(const Instruction& ins) const { return static_cast<size_t>(&ins - trace_.code.data()); }

  // A decision on contents in the middle of an FX graph is checked when all of the graph has been computed,
  // which changes nothing: where it fails, or what follows it raises, its frames are made as if nothing had
  // followed. Not one on sizes that data makes, which may be there to keep what follows small.
  bool isSpeculated(const Instruction& ins) const {
    if (ins.op != Op::kGuardTrue && ins.op != Op::kGuardFalse && ins.op != Op::kGuardValue) {
      return false;
    }
    const Operand& asked = trace_.operandsOf(ins)[0];
    return asked.isValue() && answer_[asked.id];
  }

  // The numbers that are read from contents of tensors, and what is computed of nothing but these.
  void findAnswers() {
    answer_.assign(trace_.values.size(), false);
    std::vector<ValueId> used;
    for (const Instruction& ins : trace_.code) {
      bool answers = isQuestion(ins);
      if (ir::isGraphOp(ins.op) && ins.op > Op::kDim) {
        used.clear();
        ir::collectValues(trace_, trace_.operandsOf(ins), used);
        answers = !used.empty() &&
                  std::all_of(used.begin(), used.end(), [this](ValueId value) { return answer_[value]; });
      }
      for (uint32_t r = 0; r < ins.resultCount && answers; ++r) {
        answer_[ins.firstResult + r] = true;
      }
    }
  }

  // An operator that only reads numbers from tensors, which nothing in the graph needs: `x.is_nonzero()`.
  bool isQuestion(const Instruction& ins) const {
    if (ins.op != Op::kAten || ins.resultCount == 0 || isImpure(ins)) {
      return false;
    }
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const TypeKind kind = trace_.values[ins.firstResult + r].kind;
      if (kind != TypeKind::kBool && kind != TypeKind::kInt && kind != TypeKind::kFloat) {
        return false;
      }
    }
    return true;
  }

  void addToGraph(const Instruction& ins, bool impure) {
    const OperatorTraits traits =
        ins.op == Op::kAten ? traits_(trace_.opNames[ins.opName]) : OperatorTraits{};
    const bool draws = isImpure(ins) && (traits.draws || traits.drawsInto);
    body_.push_back({ins, true, impure, draws});
    graphEnd_ = body_.size();
    lastInGraph_ = at_;
    impure_ = impure_ || impure;
    draws_ = draws_ || draws;
    if (!native_) {
      fresh_.add(ins);
      waiting_.add(ins, impure);
    } else {
      if (!own_.canFunctionalize(ins)) {
        writes_.add(ins);
      }
      own_.add(ins);
      followed_ = followed_ || follows(ins);
      reads_ = reads_ || isRead(ins);
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        madeIn_[ins.firstResult + r] = count_;
        madeAt_[ins.firstResult + r] = at_;
      }
    }
    operators_ += ins.op == Op::kAten && !isRead(ins) ? 1 : 0;
  }

  void defer(const Instruction& ins) {
    if (native_ && guard::isGiven(document_, ins, [this](ValueId v) { return madeIn_[v] == count_; })) {
      seenCuts_.addShowing(at_);
    }
    const bool silent = isBare(ins), decides = waits(ins);
    deferred_ = deferred_ || !(silent || decides);
    if (decides) {
      waits_ = true;
      waiting_.ask(ins);
      fresh_.ask(ins);
    }
    // What only stores does so in any grad mode.
    const bool stores = ins.op == Op::kSetAttr || ins.op == Op::kSetItem || ins.op == Op::kSetCell;
    acts_ = acts_ || !(silent || stores || isSpeculated(ins) || isQuestion(ins));
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      late_[ins.firstResult + r] = true;
    }
    if (ins.op == Op::kGuardBlock) {
      lateBlock_[static_cast<size_t>(trace_.operandsOf(ins)[0].i)] = true;
    }
    body_.push_back({ins, false});
    body_.back().instruction.deferrable = ins.deferrable || (ir::isGraphOp(ins.op) && ins.op != Op::kAten);
  }

  // Stops are in a graph, but what they make is no value of it.
  static bool isOfGraph(const Instruction& ins, bool inGraph) { return inGraph && !ir::isStop(ins); }

  void emit(const Instruction& ins, uint32_t graph) {
    out_.push_back(ins);
    graph_.push_back(graph);
  }

  // What the graph makes from here on is not computed again where it is left: it writes to what is older, or
  // a backend may draw other numbers than ATen.
  size_t firstKept() const {
    const auto found = std::ranges::find_if(body_, [](const Placed& p) { return p.writes || p.draws; });
    return static_cast<size_t>(found - body_.begin());
  }

  // The open segment ends after the last instruction of its graph.
  void close() {
    const bool marked = operators_ != 0;
    Instruction mark;
    mark.op = Op::kSegment;
    if (marked) {
      emit(mark, kOutside);
    }
    const size_t framedFrom = marked && !native_ ? firstKept() : body_.size();
    for (size_t i = 0; i < body_.size(); ++i) {
      if (marked && i == graphEnd_) {
        mark.op = Op::kSegmentEnd;
        emit(mark, kOutside);
      }
      Placed& placed = body_[i];
      const bool behind = marked && i < graphEnd_ && !placed.inGraph;
      if (behind && (isSpeculated(placed.instruction) || placed.instruction.op == Op::kAten)) {
        placed.instruction.deferrable = true;
      }
      const bool leaves = behind && placed.instruction.snap != ir::kNone && i > framedFrom;
      if (leaves || (placed.draws && framedFrom < body_.size() && impure_)) {
        framed_.push_back(static_cast<uint32_t>(out_.size()));
      }
      emit(placed.instruction, marked && isOfGraph(placed.instruction, placed.inGraph) ? count_ : kOutside);
    }
    if (marked && graphEnd_ == body_.size()) {
      mark.op = Op::kSegmentEnd;
      emit(mark, kOutside);
    }
    count_ += marked ? 1 : 0;
    seenCuts_.close(lastInGraph_, wanted_);
    body_.clear();
    graphEnd_ = operators_ = 0;
    impure_ = draws_ = deferred_ = waits_ = acts_ = guarded_ = followed_ = reads_ = false;
    writes_.clear();
    own_.clear();
    fresh_.clear();
    waiting_.clear();
    std::fill(madeIn_.begin(), madeIn_.end(), kOutside);
    std::fill(late_.begin(), late_.end(), false);
    std::fill(lateBlock_.begin(), lateBlock_.end(), false);
    std::fill(insideBlock_.begin(), insideBlock_.end(), 0);
  }

  // A result that is a value, or built-in containers of values, can be made without raising. So the run never
  // leaves the trace at `ret`, and its snapshot goes; else all locals at the end would be outputs.
  void dropSnapshotOfReturn() {
    if (!out_.empty() && out_.back().op == Op::kRet &&
        isPlainBuild(trace_, trace_.operandsOf(out_.back())[0])) {
      out_.back().snap = ir::kNone;
    }
  }

  guard::Document& document_;
  ir::Trace& trace_;
  OperatorTraitsFn traits_;
  uint32_t start_;
  const bool native_;
  const ir::GradientLimits limits_;
  const SeenValues seen_;
  SeenCuts seenCuts_;               // of the open segment
  std::vector<uint32_t> wanted_;    // instructions before which a segment had to end
  PartWrites writes_;               // of the open segment
  OwnWrites own_;                   // likewise
  FreshWrites fresh_;               // likewise, where the graph is an FX backend's
  WaitingWrites waiting_;           // the same
  std::vector<uint32_t> madeIn_;    // by value: the number of the open segment
  std::vector<uint32_t> madeAt_;    // by value that an operator of it makes: the instruction
  std::vector<bool> canFail_;       // by block
  std::vector<bool> feeding_;       // by value
  std::vector<bool> answer_;        // by value: says something of contents
  SizeDecisions decisions_;         // where the graph is an FX backend's
  std::vector<bool> apart_;         // results of aten.data that are not for native code
  std::vector<InRegion> inRegion_;  // by instruction: of a region, or of its ends
  std::unordered_map<uint32_t, uint32_t>
      closes_;  // by the instruction that opens a region: that which closes it
  ir::RegionMark lastEnd_ = ir::RegionMark::kNone;  // the instruction before is this end of a region
  std::vector<bool> late_;                          // by value: made by a deferred step of the open segment
  std::vector<size_t> insideBlock_;  // by block: one past it in the open segment, if it is a stop's
  std::vector<bool> lateBlock_;      // by block: runs with the deferred steps of the open segment
  std::vector<Placed> body_;         // the open segment; empty: none is open
  size_t graphEnd_ = 0;              // one past the last instruction of its graph
  uint32_t lastInGraph_ = 0;         // that instruction
  size_t operators_ = 0;
  uint32_t at_ = 0;  // the instruction that is placed
  bool wary_ = false;
  bool guarded_ = false;   // there is a guard in it
  bool followed_ = false;  // autograd follows something in it
  bool impure_ = false;
  bool draws_ = false;  // something in it draws random numbers
  bool deferred_ = false;
  bool waits_ = false;  // a decision on contents waits for the end of the graph
  bool acts_ = false;   // something that is deferred is more than a question
  bool reads_ = false;  // it reads numbers from tensors
  std::vector<Instruction> out_;
  std::vector<uint32_t> graph_;   // of out_: the number of the segment whose graph it is in
  std::vector<uint32_t> framed_;  // of out_: see SegmentPlaces
  uint32_t count_ = 0;
};

}  // namespace

uint32_t cutSegments(guard::Document& document, const SegmentOptions& options) {
  KINTSUGI_CHECK(options.start <= document.trace.code.size(), "the trace ends before its start");
  std::set<uint32_t> seenCuts;
  std::optional<uint32_t> begin;
  for (int pass = 1; !begin; ++pass) {
    begin = Cutter(document, options).run(seenCuts, pass >= kPasses);
  }
  return *begin;
}

}  // namespace kintsugi::passes
