#include <algorithm>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "guard/shown_values.h"
#include "guard/source_roots.h"
#include "ir/quiet_ops.h"
#include "ir/reach.h"
#include "ir/segment_stops.h"
#include "ir/segments.h"
#include "ops/operator.h"
#include "pyapi/drop_reference.h"
#include "pyapi/text.h"
#include "runtime/compiled_trace.h"
#include "runtime/replay_program.h"
#include "runtime/segment_writes.h"
#include "support/check.h"
#include "torchapi/op_effects.h"

namespace kintsugi::runtime {

namespace {

using ir::Op;
using ir::Operand;
using ir::OperandKind;

GilNeed gilNeedOf(Op op) {
  if (op == Op::kAten) {
    return GilNeed::kReleased;
  }
  return isScalarOp(op) || op == Op::kGuardTrue || op == Op::kGuardFalse || op == Op::kGuardValue ||
                 op == Op::kGuardMeta || op == Op::kSetGrad || op == Op::kSegment || op == Op::kSegmentEnd
             ? GilNeed::kAny
             : GilNeed::kHeld;
}

class Lowering {
 public:
  explicit Lowering(const recording::Recording& recording)
      : recording_(recording), trace_(recording.document.trace), sources_(recording.document.sources) {}

  ReplayCode run();

 private:
  void useInGuards(const ir::SourceRoots& roots);
  void findHeldSources();
  bool isNumber(ir::ValueId value) const;
  void findNumberArguments();
  void hold(const Operand& operand);
  void hold(std::span<const Operand> operands);
  void holdSource(guard::SourceId source);
  BlockPrologue& prologueOf(guard::SourceId source);
  void holdInputs();
  void findLiveIn();
  void lowerInput(const ir::Instruction& ins);
  void lowerStep(uint32_t index);
  torchapi::Value expectedOf(const ir::Instruction& ins) const;
  pyapi::Ref<> namesOf(const ir::Instruction& ins) const;
  void addDrops();
  void addSegments();
  void addToSegment(SegmentCode& segment, size_t at);
  void findGraphInputs();
  void checkSteps() const;
  void findShown(SegmentCode& segment);
  void findKept(SegmentCode& segment);
  void findStops(SegmentCode& segment);
  void findRewritten(SegmentCode& segment);
  void findAsked(SegmentCode& segment, const std::unordered_set<ir::ValueId>& inside);
  void findWrites(SegmentCode& segment);
  void findSegmentDrops(SegmentCode& segment);
  void findLeftAtReturn();
  void findDroppedSources(const ir::SourceRoots& roots);
  bool dropsReference(const ir::Instruction& ins) const;

  const recording::Recording& recording_;
  const ir::Trace& trace_;
  const guard::SourceTable& sources_;
  ir::Liveness liveness_;
  std::vector<bool> heldSource_;
  std::vector<bool> seenRecipe_;
  std::vector<bool> seenState_;
  ReplayCode code_;
};

ReplayCode Lowering::run() {
  const ir::SourceRoots roots = guard::sourceRoots(sources_);
  liveness_ = ir::computeLiveness(trace_, roots);
  useInGuards(roots);
  code_.recording = &recording_;
  code_.prologues.resize(std::max<size_t>(1, recording_.document.guards.blockCount));
  code_.isRoot.resize(trace_.values.size(), false);
  for (const ir::ValueId value : roots.value) {
    if (value != ir::kNone) {
      code_.isRoot[value] = true;
    }
  }
  findHeldSources();
  findNumberArguments();
  for (uint32_t index = 0; index < trace_.code.size(); ++index) {
    const ir::Instruction& ins = trace_.code[index];
    for (uint32_t r = 0; ins.op == Op::kAten && r < ins.resultCount; ++r) {
      const ir::ValueId value = ins.firstResult + r;
      if (trace_.values[value].kind == ir::TypeKind::kTensor) code_.madeTensors.push_back(value);
    }
    if (index < recording_.start) {
      continue;
    }
    if (ins.op == Op::kInput) {
      lowerInput(ins);
    } else {
      lowerStep(index);
    }
  }
  KINTSUGI_CHECK(!code_.steps.empty() && code_.steps.back().op == Op::kRet,
                 "a trace that does not end in ret");
  findDroppedSources(roots);
  holdInputs();
  addDrops();
  findLiveIn();
  addSegments();
  findLeftAtReturn();
  findGraphInputs();
  checkSteps();
  return std::move(code_);
}

// What a run relies on without looking: operators are there, drops and segments lie in their tables.
void Lowering::checkSteps() const {
  for (size_t at = 0; at < code_.steps.size(); ++at) {
    const Step& step = code_.steps[at];
    KINTSUGI_CHECK(step.index < trace_.code.size() && (at == 0 || code_.steps[at - 1].index < step.index),
                   "step ", at, " is out of order");
    KINTSUGI_CHECK(step.op != Op::kAten || step.call != nullptr, "step ", at, " calls no operator");
    KINTSUGI_CHECK(step.earlyDropCount <= step.dropCount &&
                       step.firstDrop + size_t{step.dropCount} <= code_.drops.size(),
                   "step ", at, " drops ", step.firstDrop, " and ", step.dropCount, " more of ",
                   code_.drops.size());
    KINTSUGI_CHECK(step.op != Op::kSegment || step.segment < code_.segments.size(), "step ", at,
                   " begins segment ", step.segment);
  }
  for (const ir::ValueId value : code_.drops) {
    KINTSUGI_CHECK(value < trace_.values.size(), "%", value, " is dropped");
  }
  for (const SegmentCode& segment : code_.segments) {
    KINTSUGI_CHECK(segment.beginStep < segment.endStep && segment.endStep < code_.steps.size(), "a segment [",
                   segment.beginStep, ", ", segment.endStep, "] of ", code_.steps.size(), " steps");
    for (const size_t at : segment.graph) {
      KINTSUGI_CHECK(segment.beginStep < at && at < segment.endStep, "step ", at, " is in no segment");
    }
  }
}

// The prologue in which a source is read. Sources that the parent of a side trace has resolved are read after
// the side trace's first own block.
BlockPrologue& Lowering::prologueOf(guard::SourceId source) {
  return code_.prologues.at(std::max(sources_.nodes[source].block, recording_.firstBlock));
}

void Lowering::holdSource(guard::SourceId source) {
  // Sources of a step's result are held until the last instruction or snapshot that names them, not longer.
  if (!heldSource_[source] && sources_.nodes[source].kind != guard::SourceKind::kValue) {
    heldSource_[source] = true;
    prologueOf(source).held.push_back(source);
  }
}

void Lowering::hold(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    hold(operand);
  }
}

void Lowering::hold(const Operand& operand) {
  if (operand.kind == OperandKind::kSource) {
    holdSource(operand.id);
  } else if (operand.kind == OperandKind::kList) {
    hold(trace_.listOf(operand));
  } else if (operand.kind == OperandKind::kRecipe && !seenRecipe_[operand.id]) {
    seenRecipe_[operand.id] = true;
    hold(trace_.recipes[operand.id].parts);
  }
}

void Lowering::findHeldSources() {
  heldSource_.resize(sources_.nodes.size(), false);
  seenRecipe_.resize(trace_.recipes.size(), false);
  seenState_.resize(trace_.states.size(), false);
  for (const ir::Instruction& ins : std::span(trace_.code).subspan(recording_.start)) {
    if (ins.op != Op::kInput) {
      hold(trace_.operandsOf(ins));
    }
    for (ir::StateId id = ins.snap; id != ir::kNone && !seenState_[id]; id = trace_.states[id].parent) {
      seenState_[id] = true;
      const ir::FrameState& state = trace_.states[id];
      hold(state.function);
      hold(state.replacement);
      hold(state.handled);
      hold(trace_.localsOf(state));
      hold(trace_.stackOf(state));
    }
  }
  // Marks what later guard blocks compare, and the sources that they start from.
  for (const guard::Guard& guard : recording_.document.guards.guards) {
    for (const guard::SourceId source : {guard.source, guard.other}) {
      if (source != ir::kNone && sources_.nodes[source].block < guard.block) {
        holdSource(source);
      }
    }
  }
  for (const guard::SourceNode& node : sources_.nodes) {
    if (node.block < recording_.firstBlock) {
      continue;
    }
    if (node.parent != ir::kNone && sources_.nodes[node.parent].block < node.block) {
      holdSource(node.parent);
    }
  }
}

bool Lowering::isNumber(ir::ValueId value) const {
  const ir::TypeKind kind = trace_.values[value].kind;
  return kind == ir::TypeKind::kInt || kind == ir::TypeKind::kFloat;
}

// Those of the parent of a side trace too: it is the same call.
void Lowering::findNumberArguments() {
  code_.numberArguments.resize(trace_.values.size(), ir::kNone);
  for (const ir::Instruction& ins : trace_.code) {
    if (ins.op != Op::kInput || !isNumber(ins.firstResult)) continue;
    const guard::SourceId source = trace_.operandsOf(ins)[0].id;
    if (sources_.nodes[source].kind == guard::SourceKind::kArg)
      code_.numberArguments[ins.firstResult] = source;
  }
}

// A guard may compare what a step has just given with what an earlier one gave.
void Lowering::useInGuards(const ir::SourceRoots& roots) {
  std::vector<uint32_t> at(recording_.document.guards.blockCount, ir::kNone);
  for (uint32_t index = 0; index < trace_.code.size(); ++index) {
    if (trace_.code[index].op == Op::kGuardBlock) {
      at.at(static_cast<size_t>(trace_.operandsOf(trace_.code[index])[0].i)) = index;
    }
  }
  for (const guard::Guard& guard : recording_.document.guards.guards) {
    for (const guard::SourceId source : {guard.source, guard.other}) {
      const ir::ValueId value = source != ir::kNone ? roots.itself[source] : ir::kNone;
      if (value == ir::kNone || at[guard.block] == ir::kNone) continue;
      uint32_t& last = liveness_.lastUse[value];
      last = last == ir::kNone ? at[guard.block] : std::max(last, at[guard.block]);
    }
  }
}

bool Lowering::dropsReference(const ir::Instruction& ins) const {
  if (ins.op != Op::kCall) {
    return false;
  }
  const auto operands = trace_.operandsOf(ins);
  return operands.size() == 2 && operands[0].kind == OperandKind::kConst && operands[1].isValue() &&
         recording_.consts[operands[0].id].get() == pyapi::dropReferenceFunction();
}

// Sources that were read from the object are dropped with it, except those that are used after the step.
void Lowering::findDroppedSources(const ir::SourceRoots& roots) {
  const auto isStep = [this](const ir::Instruction& ins) { return dropsReference(ins); };
  if (std::ranges::none_of(trace_.code, isStep)) {
    return;
  }
  guard::BlockId block = recording_.document.guards.blockCount;
  std::vector<bool> used(sources_.nodes.size(), false);
  ir::ReachWalker walker(trace_);
  for (size_t index = trace_.code.size(); index-- > 0;) {
    const ir::Instruction& ins = trace_.code[index];
    if (ins.op == Op::kGuardBlock) {
      block = static_cast<guard::BlockId>(trace_.operandsOf(ins)[0].i);
    }
    if (dropsReference(ins)) {
      std::vector<guard::SourceId>& dropped = code_.droppedSources[static_cast<uint32_t>(index)];
      for (guard::SourceId source = 0; source < roots.value.size(); ++source) {
        const guard::SourceNode& node = sources_.nodes[source];
        if (node.block >= block && node.parent != ir::kNone) {
          used[node.parent] = true;  // where later guard blocks start from
        }
      }
      for (guard::SourceId source = 0; source < roots.value.size(); ++source) {
        const bool reached =
            roots.value[source] == trace_.operandsOf(ins)[1].id && sources_.nodes[source].block < block;
        if (reached && heldSource_[source] && !used[source]) {
          dropped.push_back(source);
        }
      }
    }
    walker.instruction(
        ins, [](ir::ValueId) {}, [&used](guard::SourceId source) { used[source] = true; });
  }
}

// Where a run checks again what it has read (run_revalidate.cc), its inputs are compared by their addresses.
// So they must not die meanwhile.
void Lowering::holdInputs() {
  if (!code_.droppedSources.empty()) return;
  const auto runs = [](const Step& step) { return step.op == Op::kAten || step.op == Op::kSegment; };
  const auto acts = [](const Step& step) { return step.acts; };
  const auto first = std::ranges::find_if(code_.steps, runs);
  if (std::find_if(first, code_.steps.end(), acts) == code_.steps.end()) return;
  for (size_t block = 0; block < code_.prologues.size(); ++block) {
    for (const InputLoad& load : std::vector(code_.prologues[block].inputs)) holdSource(load.source);
  }
}

void Lowering::lowerInput(const ir::Instruction& ins) {
  const guard::SourceId source = trace_.operandsOf(ins)[0].id;
  const bool kept = isNumber(ins.firstResult) && code_.numberArguments[ins.firstResult] == ir::kNone;
  prologueOf(source).inputs.push_back(
      {source, ins.firstResult, torchapi::kindOfType(trace_.values[ins.firstResult].kind), kept});
}

torchapi::Value Lowering::expectedOf(const ir::Instruction& ins) const {
  torchapi::Value out;
  const Operand& operand = trace_.operandsOf(ins)[1];
  switch (operand.kind) {
    case OperandKind::kInt:
      out.kind = torchapi::ValueKind::kInt;
      out.i = operand.i;
      break;
    case OperandKind::kBool:
      out.kind = torchapi::ValueKind::kBool;
      out.i = operand.i;
      break;
    case OperandKind::kFloat:
      out.kind = torchapi::ValueKind::kFloat;
      out.f = operand.f;
      break;
    case OperandKind::kConst: {
      using torchapi::ValueKind;
      PyObject* object = recording_.consts[operand.id].get();
      for (const ValueKind kind : {ValueKind::kBool, ValueKind::kInt, ValueKind::kFloat}) {
        if (torchapi::unbox(object, kind, out)) {
          break;
        }
      }
      break;
    }
    default:
      break;
  }
  return out;
}

pyapi::Ref<> Lowering::namesOf(const ir::Instruction& ins) const {
  auto text = [this](const Operand& operand) { return pyapi::decoded(trace_.strings[operand.id]); };
  if (ins.op == Op::kSetAttr || ins.op == Op::kDelAttr) {
    return text(trace_.operandsOf(ins)[1]);
  }
  if (ins.kwCount == 0) {
    return {};
  }
  pyapi::Ref<> names = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(ins.kwCount)));
  for (uint32_t k = 0; k < ins.kwCount; ++k) {
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(k), text(trace_.lists[ins.kwNames + k]).release());
  }
  return names;
}

void Lowering::lowerStep(uint32_t index) {
  const ir::Instruction& ins = trace_.code[index];
  Step step;
  step.op = ins.op;
  step.gil = gilNeedOf(ins.op);
  step.acts = ins.snap != ir::kNone && (ir::opInfo(ins.op).flags & ir::kEffect) != 0;
  step.index = index;
  step.snap = ins.snap;
  step.names = namesOf(ins);
  step.dropsReference = dropsReference(ins);
  if (ins.op == Op::kAten) {
    std::string reason;
    auto call = torchapi::AtenCall::make(trace_, index, liveness_, reason);
    KINTSUGI_CHECK(call != nullptr, reason);
    step.call = call.get();
    code_.calls.push_back(std::move(call));
  }
  code_.expected.push_back(ins.op == Op::kGuardValue ? expectedOf(ins) : torchapi::Value());
  code_.steps.push_back(std::move(step));
}

// A side trace starts with the values that its parent has left: those defined before `start` and used after.
void Lowering::findLiveIn() {
  if (recording_.firstBlock == 0) {
    return;
  }
  code_.liveIn.resize(trace_.values.size(), false);
  for (const ir::Instruction& ins : std::span(trace_.code).first(recording_.start)) {
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ir::ValueId value = ins.firstResult + r;
      code_.liveIn[value] =
          liveness_.lastUse[value] != ir::kNone && liveness_.lastUse[value] >= recording_.start;
      if (code_.liveIn[value] && code_.isRoot[value]) {
        code_.rootsOnEntry.push_back(value);
      }
    }
  }
}

// A value is dropped at its last use. Objects need the GIL: they wait for the next step that holds it, and
// are dropped before that step runs, since dropping may have effects (a file is closed).
void Lowering::addDrops() {
  std::vector<std::vector<ir::ValueId>> dying(trace_.code.size());
  for (ir::ValueId value = 0; value < liveness_.lastUse.size(); ++value) {
    if (liveness_.lastUse[value] != ir::kNone) {
      dying[liveness_.lastUse[value]].push_back(value);
    }
  }
  std::vector<ir::ValueId> waiting;
  const auto collect = [&](size_t instruction) {
    for (const ir::ValueId value : dying[instruction]) {
      const bool object = trace_.values[value].kind == ir::TypeKind::kObject || code_.isRoot[value];
      (object ? waiting : code_.drops).push_back(value);
    }
  };
  const auto dropWaiting = [&](const Step& step) {
    if (step.gil != GilNeed::kHeld) return;
    code_.drops.insert(code_.drops.end(), waiting.begin(), waiting.end());
    waiting.clear();
  };
  // Instructions that are no steps (unused inputs) pass their dying values on to the next step.
  size_t next = recording_.start;
  for (Step& step : code_.steps) {
    step.firstDrop = static_cast<uint32_t>(code_.drops.size());
    dropWaiting(step);
    step.earlyDropCount = static_cast<uint32_t>(code_.drops.size()) - step.firstDrop;
    for (; next <= step.index; ++next) {
      collect(next);
    }
    dropWaiting(step);
    step.dropCount = static_cast<uint32_t>(code_.drops.size()) - step.firstDrop;
  }
}

// Divides the steps between the marks into those of the graph, which a runner replaces, and the others.
void Lowering::addSegments() {
  std::vector<ir::ValueId> values;
  bool open = false;
  for (size_t at = 0; at < code_.steps.size(); ++at) {
    Step& step = code_.steps[at];
    const ir::Instruction& ins = trace_.code[step.index];
    if (step.op == Op::kSegment || step.op == Op::kSegmentEnd) {
      values.clear();
      ir::collectValues(trace_, trace_.operandsOf(ins), values);
      open = step.op == Op::kSegment;
      if (open) {
        step.segment = static_cast<uint32_t>(code_.segments.size());
        code_.segments.emplace_back();
      }
      SegmentCode& segment = code_.segments.back();
      (open ? segment.beginStep : segment.endStep) = at;
      (open ? segment.inputs : segment.outputs) = values;
      if (!open) {
        const auto leaves = [this](size_t inner) { return code_.steps[inner].snap != ir::kNone; };
        if (std::ranges::none_of(segment.offGraph, leaves)) segment.draws.clear();
        findShown(segment);
        findStops(segment);
        findRewritten(segment);
        findKept(segment);
        findWrites(segment);
        findSegmentDrops(segment);
      }
    } else if (open) {
      addToSegment(code_.segments.back(), at);
    }
  }
}

void Lowering::findShown(SegmentCode& segment) {
  const ir::SegmentRange range{code_.steps[segment.beginStep].index, code_.steps[segment.endStep].index};
  std::unordered_set<ir::ValueId> made;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    const ir::Instruction& ins = trace_.code[i];
    for (uint32_t r = 0; r < ins.resultCount && ir::isInGraph(ins); ++r) {
      made.insert(ins.firstResult + r);
    }
  }
  for (const size_t at : segment.offGraph) {
    segment.shows.push_back(guard::isGiven(recording_.document, trace_.code[code_.steps[at].index],
                                           [&](ir::ValueId value) { return made.contains(value); }));
  }
}

// What the graph has made and shares memory with a tensor that it writes to, and where it last writes to a
// tensor that is older. `first` of a value: the first one that may share its memory.
void Lowering::findRewritten(SegmentCode& segment) {
  if (!segment.writes || segment.offGraph.empty()) {
    return;
  }
  std::unordered_map<ir::ValueId, ir::ValueId> before;  // by value: another one of the same memory
  const auto first = [&before](ir::ValueId value) {
    for (auto found = before.find(value); found != before.end(); found = before.find(value)) {
      value = found->second;
    }
    return value;
  };
  const auto join = [&](ir::ValueId a, ir::ValueId b) {
    a = first(a);
    b = first(b);
    if (a != b) before[std::max(a, b)] = std::min(a, b);
  };
  std::vector<std::pair<size_t, ir::ValueId>> written;
  std::vector<SegmentCode::Rewritten> made;
  std::vector<ir::ValueId> used, shared;
  for (const size_t at : segment.graph) {
    const ir::Instruction& ins = trace_.code[code_.steps[at].index];
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      made.push_back({at, ins.firstResult + r});
      join(ins.firstResult, ins.firstResult + r);
    }
    if (ins.op != Op::kAten) continue;
    const std::string& name = trace_.opNames[ins.opName];
    const torchapi::OpEffects effects = torchapi::opEffects(name);
    const bool unseen = effects.writesUnseen && !ir::isQuiet(trace_, ins);
    if (unseen || (effects.writes && ins.resultCount == 0)) segment.lastWrite = at;
    if (ins.resultCount == 0) continue;
    if (effects.freshResults || ops::has(name, ops::Trait::kFresh)) continue;
    const auto operands = trace_.operandsOf(ins);
    used.clear();
    ir::collectValues(trace_, effects.writes ? operands.first(1) : operands, used);
    for (const ir::ValueId value : used) join(value, ins.firstResult);
    shared.insert(shared.end(), used.begin(), used.end());
    if (effects.writes) written.emplace_back(at, ins.firstResult);
  }
  std::unordered_set<ir::ValueId> inside, roots, older;
  for (const SegmentCode::Rewritten& one : made) inside.insert(one.value);
  for (const ir::ValueId value : shared) {
    if (!inside.contains(value)) older.insert(first(value));
  }
  for (const auto& [at, value] : written) {
    roots.insert(first(value));
    if (older.contains(first(value))) segment.lastWrite = std::max(segment.lastWrite, at);
  }
  std::copy_if(made.begin(), made.end(), std::back_inserter(segment.rewritten),
               [&](const SegmentCode::Rewritten& one) { return roots.contains(first(one.value)); });
  findAsked(segment, inside);
}

// May the run leave in front of the last write to something older? And what is asked there of tensors that
// are older.
void Lowering::findAsked(SegmentCode& segment, const std::unordered_set<ir::ValueId>& inside) {
  std::vector<ir::ValueId> used;
  for (const size_t at : segment.offGraph) {
    if (at > segment.lastWrite) break;
    segment.rollsBack = segment.rollsBack || code_.steps[at].snap != ir::kNone;
    if (code_.steps[at].op != Op::kAten) continue;
    used.clear();
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[code_.steps[at].index]), used);
    std::ranges::copy_if(used, std::back_inserter(segment.asked), [&](ir::ValueId value) {
      return trace_.values[value].kind == ir::TypeKind::kTensor && !inside.contains(value);
    });
  }
}

// What is written to something older can't be computed once more. So what frames behind it hold, and what is
// drawn from, has to be there.
void Lowering::findKept(SegmentCode& segment) {
  if (segment.lastWrite == 0 || !segment.stops.empty()) return;
  std::unordered_set<ir::ValueId> missing;
  for (const size_t at : segment.graph) {
    const ir::Instruction& ins = trace_.code[code_.steps[at].index];
    for (uint32_t r = 0; r < ins.resultCount; ++r) missing.insert(ins.firstResult + r);
  }
  for (const ir::ValueId value : segment.outputs) missing.erase(value);
  ir::ReachWalker walker(trace_);
  const auto use = [&](size_t at, ir::StateId snap) {
    ir::Instruction ins = trace_.code[code_.steps[at].index];
    ins.snap = snap;
    walker.instruction(
        ins,
        [&](ir::ValueId value) {
          KINTSUGI_CHECK(!missing.contains(value), "%", value, " is needed behind a write, and is no output");
        },
        [](ir::SourceId) {});
  };
  segment.keeps = true;
  for (const size_t at : segment.offGraph) {
    if (at > segment.lastWrite) use(at, code_.steps[at].snap);
  }
  for (const size_t at : segment.draws) use(at, ir::kNone);
}

void Lowering::findWrites(SegmentCode& segment) {
  std::vector<const ir::Instruction*> graph;
  for (const size_t at : segment.graph) {
    const ir::Instruction& ins = trace_.code[code_.steps[at].index];
    if (ins.op == Op::kAten) graph.push_back(&ins);
  }
  if (segment.writes) segment.restored = findRestored(trace_, segment.inputs, graph, segment.rollsBack);
}

void Lowering::findStops(SegmentCode& segment) {
  const ir::SegmentRange range{code_.steps[segment.beginStep].index, code_.steps[segment.endStep].index};
  for (ir::SegmentStop& stop : ir::findStops(trace_, range)) {
    const auto isBefore = [&](size_t at) { return code_.steps[at].index < stop.end; };
    const auto count = std::count_if(segment.offGraph.begin(), segment.offGraph.end(), isBefore);
    segment.stops.push_back({std::move(stop.given), std::move(stop.made), static_cast<size_t>(count)});
  }
}

// What is dropped in a segment that a runner has computed: everything that dies inside (inputs, values kept
// for snapshots, results of the steps after the graph), at its end, but for objects of the program, which go
// between the steps where they die. Intermediate values of the graph never existed.
void Lowering::findSegmentDrops(SegmentCode& segment) {
  segment.dropsBefore.resize(segment.offGraph.size());
  std::vector<ir::ValueId> used;
  for (const size_t at : segment.graph) {
    const ir::Instruction& ins = trace_.code[code_.steps[at].index];
    ir::collectValues(trace_, trace_.operandsOf(ins), used);
  }
  std::vector<bool> inside(trace_.values.size(), false);
  for (const size_t at : segment.graph) {
    const ir::Instruction& ins = trace_.code[code_.steps[at].index];
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      inside[ins.firstResult + r] = true;
    }
  }
  for (const ir::ValueId value : segment.outputs) {
    inside[value] = false;
  }
  for (const SegmentCode::Stop& stop : segment.stops) {
    for (const ir::ValueId value : stop.given) {
      inside[value] = false;
    }
  }
  for (size_t at = segment.beginStep; at < segment.endStep; ++at) {
    const Step& step = code_.steps[at];
    for (uint32_t k = 0; k < step.dropCount; ++k) {
      const ir::ValueId value = code_.drops[step.firstDrop + k];
      const size_t done = k < step.earlyDropCount ? at : at + 1;
      const auto next = std::ranges::lower_bound(segment.offGraph, done);
      if (trace_.values[value].kind == ir::TypeKind::kObject && next != segment.offGraph.end() &&
          std::ranges::find(used, value) == used.end()) {
        segment.dropsBefore[static_cast<size_t>(next - segment.offGraph.begin())].push_back(value);
      } else if (!inside[value]) {
        segment.drops.push_back(value);
        segment.dropsObjects =
            segment.dropsObjects || trace_.values[value].kind == ir::TypeKind::kObject || code_.isRoot[value];
      }
    }
  }
}

// Values that are still there at the return: what dies at the return itself (it ends the run), and at the end
// of a segment, which is skipped if a runner has computed it.
void Lowering::findLeftAtReturn() {
  std::vector<bool> dropped(trace_.values.size(), false);
  for (const Step& step : code_.steps) {
    if (step.op != Op::kRet && step.op != Op::kSegmentEnd) {
      for (uint32_t k = 0; k < step.dropCount; ++k) {
        dropped[code_.drops[step.firstDrop + k]] = true;
      }
    }
  }
  for (const ir::Instruction& ins : trace_.code) {
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      if (!dropped[ins.firstResult + r]) {
        code_.leftAtReturn.push_back(ins.firstResult + r);
      }
    }
  }
}

void Lowering::addToSegment(SegmentCode& segment, size_t at) {
  const Step& step = code_.steps[at];
  if (!ir::isInGraph(trace_.code[step.index])) {
    segment.offGraph.push_back(at);
    return;
  }
  // An exception that leaves where the segment begins leaves before its first instruction.
  Step& begin = code_.steps[segment.beginStep];
  begin.snap = begin.snap == ir::kNone ? step.snap : begin.snap;
  segment.graph.push_back(at);
  segment.changesGradMode = segment.changesGradMode || step.op == Op::kSetGrad;
  if (step.op == Op::kAten) {
    const torchapi::OpEffects effects = torchapi::opEffects(trace_.opNames[trace_.code[step.index].opName]);
    segment.writes = segment.writes || effects.writes;
    const bool unseen = effects.writesUnseen && !ir::isQuiet(trace_, trace_.code[step.index]);
    segment.writes = segment.writes || unseen;
    segment.writesUnseen = segment.writesUnseen || (unseen && (effects.collective || effects.mayRunPython));
    if (effects.random && !ir::isQuiet(trace_, trace_.code[step.index])) {
      segment.random = true;
      segment.draws.push_back(at);
    }
  }
}

void Lowering::findGraphInputs() {
  if (code_.segments.empty()) {
    return;
  }
  std::vector<bool> elsewhere(trace_.values.size(), false);
  std::vector<std::vector<uint32_t>> users(trace_.values.size());
  const size_t before = ir::findSegments(trace_).size() - code_.segments.size();  // the parent's
  ir::forEachSegmentUse(trace_, trace_.code, [&](size_t at, uint32_t segment, ir::ValueId value) {
    if (trace_.code[at].op == Op::kSegment) {
      return;  // the list of inputs itself
    }
    if (segment == ir::kNone || segment < before || trace_.code[at].region != ir::RegionMark::kNone) {
      elsewhere[value] = true;
    } else if (users[value].empty() || users[value].back() != segment - before) {
      users[value].push_back(static_cast<uint32_t>(segment - before));
    }
  });
  for (const SegmentCode& segment : code_.segments) {
    for (const ir::ValueId value : segment.outputs) {
      elsewhere[value] = true;
    }
  }
  for (const BlockPrologue& prologue : code_.prologues) {
    for (const InputLoad& load : prologue.inputs) {
      if (load.kind == torchapi::ValueKind::kTensor && !elsewhere[load.value] && !users[load.value].empty()) {
        code_.graphInputs[load.value] = std::move(users[load.value]);
      }
    }
  }
}

}  // namespace

ReplayCode lowerTrace(const recording::Recording& recording) { return Lowering(recording).run(); }

bool loadsInput(const ReplayCode& code, guard::BlockId block, guard::SourceId source) {
  return block < code.prologues.size() &&
         std::any_of(code.prologues[block].inputs.begin(), code.prologues[block].inputs.end(),
                     [source](const InputLoad& load) { return load.source == source; });
}

bool takesInputs(const ReplayCode& code, PyObject* const* slots) {
  const ir::Trace& trace = code.recording->document.trace;
  for (const InputLoad& load : code.prologues[0].inputs) {
    torchapi::Value value;
    const torchapi::ValueKind kind = torchapi::kindOfType(trace.values[load.value].kind);
    if (!torchapi::unbox(slots[load.source], kind, value)) return false;
    torchapi::clear(value);
  }
  return true;
}

}  // namespace kintsugi::runtime
