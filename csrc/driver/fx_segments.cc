#include "driver/fx_segments.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "driver/fx_examples.h"
#include "driver/fx_runner.h"
#include "driver/operand_objects.h"
#include "ir/quiet_ops.h"
#include "ir/segment_stops.h"
#include "ir/segments.h"
#include "passes/pass_manager.h"
#include "runtime/guard_explain.h"
#include "runtime/replay_program.h"
#include "runtime/trace_cache.h"
#include "support/check.h"
#include "support/fault.h"
#include "torchapi/global_state.h"
#include "torchapi/op_effects.h"
#include "torchapi/python_constants.h"

namespace kintsugi::driver {

using ir::Instruction;
using ir::Op;
using ir::TypeKind;
using ir::ValueId;
using pyapi::Ref;
using torchapi::ValueKind;

passes::OperatorTraits operatorTraits(std::string_view name) {
  const torchapi::OpEffects effects = torchapi::opEffects(name);
  passes::OperatorTraits traits;
  traits.inGraph = effects.known && !effects.dynamicSizes && !effects.changesMetadata && !effects.mixesLists;
  traits.sizesOfData =
      effects.known && effects.dynamicSizes && !effects.changesMetadata && !effects.mixesLists;
  traits.sizesFromMask = effects.sizesFromMask;
  traits.impure = effects.writes || effects.writesUnseen || effects.random;
  traits.writes = effects.writes && !effects.writesUnseen && !effects.random;
  const bool draws = effects.random && !effects.writesUnseen && !effects.mayRunPython;
  traits.draws = draws && !effects.writes;
  traits.drawsInto = draws && effects.writes;
  traits.fresh = effects.freshResults;
  traits.countOfSizes = effects.countOfSizes;
  traits.replayed = effects.collective || effects.mayRunPython;
  return traits;
}

namespace {

// Makes the function that a graph calls at its n-th stop; empty: graphs are only to be looked at.
using StopMaker = std::function<Ref<>(size_t)>;

// Writes the dict that describes one segment. Each method returns null or false with an exception pending.
class Describer {
 public:
  // `consts`: the objects that the trace's constants stand for.
  Describer(const guard::Document& document, const ir::SegmentRange& range, std::span<const Ref<>> consts,
            StopMaker makeStop = {})
      : document_(document),
        consts_(consts),
        trace_(document.trace),
        range_(range),
        makeStop_(std::move(makeStop)),
        stops_(ir::findStops(document.trace, range)) {
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range.begin]), inputs_);
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range.end]), outputs_);
    used_.insert(outputs_.begin(), outputs_.end());
    std::vector<ValueId> values;
    forEachGraphInstruction([&](const Instruction& ins) {
      if (!ir::isStop(ins)) {
        ir::collectValues(trace_, trace_.operandsOf(ins), values);
      }
      return true;
    });
    for (const ir::SegmentStop& stop : stops_) {
      values.insert(values.end(), stop.given.begin(), stop.given.end());
    }
    used_.insert(values.begin(), values.end());
  }

  Ref<> describe(const std::string& name) {
    Ref<> dict = pyapi::steal(PyDict_New());
    bool ok = dict && setIn(dict.get(), "name", textObject(name)) &&
              setIn(dict.get(), "inputs", ids(inputs_)) && setIn(dict.get(), "input_names", names()) &&
              setIn(dict.get(), "dynamic", dynamicInputs()) && setIn(dict.get(), "open_sizes", openSizes()) &&
              setIn(dict.get(), "ops", operations()) &&
              setIn(dict.get(), "writes", pyapi::newRef(writes() ? Py_True : Py_False)) &&
              setIn(dict.get(), "outputs", ids(outputs_));
    return ok ? std::move(dict) : Ref<>();
  }

 private:
  template <typename Visit>
  bool forEachGraphInstruction(const Visit& visit) {
    for (uint32_t i = range_.begin + 1; i < range_.end; ++i) {
      const Instruction& ins = trace_.code[i];
      if ((ir::isInGraph(ins) || ir::isStop(ins)) && !visit(ins)) {
        return false;
      }
    }
    return true;
  }

  // None for a value that does not exist (an undefined tensor).
  Ref<> id(ValueId value) const {
    return trace_.values[value].kind == TypeKind::kNone ? pyapi::newRef(Py_None)
                                                        : pyapi::steal(PyLong_FromUnsignedLong(value));
  }

  Ref<> ids(const std::vector<ValueId>& values) const {
    Ref<> list = pyapi::steal(PyList_New(0));
    for (const ValueId value : values) {
      if (!list || !appendTo(list.get(), id(value))) {
        return {};
      }
    }
    return list;
  }

  // Where an input comes from, as the user would write it: `self.fc.weight`.
  Ref<> names() const {
    std::unordered_map<ValueId, ir::SourceId> sources;
    for (uint32_t i = 0; i < range_.begin; ++i) {
      if (trace_.code[i].op == Op::kInput) {
        sources[trace_.code[i].firstResult] = trace_.operandsOf(trace_.code[i])[0].id;
      }
    }
    Ref<> list = pyapi::steal(PyList_New(0));
    for (const ValueId value : inputs_) {
      const auto found = sources.find(value);
      const std::string name = found == sources.end()
                                   ? "t" + std::to_string(value)
                                   : document_.sources.path(found->second, trace_.constTexts);
      if (!list || !appendTo(list.get(), textObject(name))) {
        return {};
      }
    }
    return list;
  }

  // Positions of the inputs that may differ from run to run in more than a tensor's contents.
  Ref<> dynamicInputs() const {
    Ref<> list = pyapi::steal(PyList_New(0));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const ir::Type& type = trace_.values[inputs_[i]];
      const bool fixed = type.kind == TypeKind::kTensor && trace_.hasFixedSizes(type);
      if (!list || (!fixed && !appendTo(list.get(), pyapi::steal(PyLong_FromSize_t(i))))) {
        return {};
      }
    }
    return list;
  }

  // Does it write to tensors? Schemas do not say so of all operators.
  bool writes() {
    bool any = false;
    forEachGraphInstruction([&](const Instruction& ins) {
      if (ins.op != Op::kAten) return true;
      const torchapi::OpEffects effects = torchapi::opEffects(trace_.opNames[ins.opName]);
      any = any || ir::isImpure(trace_, ins, effects.writes || effects.writesUnseen);
      return true;
    });
    return any;
  }

  // Of each of these: the dimensions whose size may differ. None: all, or it is a number.
  Ref<> openSizes() const {
    Ref<> list = pyapi::steal(PyList_New(0));
    for (const ValueId input : inputs_) {
      const ir::Type& type = trace_.values[input];
      if (type.kind == TypeKind::kTensor && trace_.hasFixedSizes(type)) continue;
      const bool known = type.kind == TypeKind::kTensor && type.meta != ir::kNone;
      Ref<> dims = pyapi::steal(known ? PyList_New(0) : Py_NewRef(Py_None));
      const auto sizes =
          known ? std::span<const int64_t>(trace_.metas[type.meta].sizes) : std::span<const int64_t>();
      for (size_t d = 0; dims && d < sizes.size(); ++d) {
        if (sizes[d] == ir::kAnySize && !appendTo(dims.get(), pyapi::steal(PyLong_FromSize_t(d)))) return {};
      }
      if (!list || !appendTo(list.get(), std::move(dims))) return {};
    }
    return list;
  }

  Ref<> operations() {
    Ref<> list = pyapi::steal(PyList_New(0));
    size_t stops = 0;
    const bool ok = list && forEachGraphInstruction([&](const Instruction& ins) {
                      if (ins.region != ir::RegionMark::kNone)
                        return ins.op == Op::kGuardBlock || appendTo(list.get(), endOfRegion(ins));
                      return appendTo(list.get(), ir::isStop(ins) ? stop(stops++) : operation(ins));
                    });
    return ok ? std::move(list) : Ref<>();
  }

  Ref<> references(const std::vector<ValueId>& values) const {
    std::vector<ir::Operand> operands;
    std::transform(values.begin(), values.end(), std::back_inserter(operands), ir::Operand::value);
    return operandObjects(trace_, operands, Describing::kOperators);
  }

  Ref<> stop(size_t number) const {
    const ir::SegmentStop& stop = stops_[number];
    const ir::Operand& callee = trace_.operandsOf(trace_.code[stop.call])[0];
    const bool named = callee.kind == ir::OperandKind::kConst && callee.id < trace_.constTexts.size();
    Ref<> dict = pyapi::steal(PyDict_New());
    const bool ok = dict && setIn(dict.get(), "target", textObject("step")) &&
                    setIn(dict.get(), "name", textObject(named ? trace_.constTexts[callee.id] : "")) &&
                    setIn(dict.get(), "args", references(stop.given)) &&
                    setIn(dict.get(), "results", ids(stop.made)) &&
                    (!makeStop_ || setIn(dict.get(), "call", makeStop_(number)));
    return ok ? std::move(dict) : Ref<>();
  }

  // Of what a call that opens a region is given, the tensors by themselves in the tuple of the arguments
  // count.
  Ref<> endOfRegion(const Instruction& ins) const {
    const auto operands = trace_.operandsOf(ins);
    std::vector<ValueId> given;
    for (const ir::Operand& operand : operands) {
      if (operand.kind != ir::OperandKind::kRecipe ||
          trace_.recipes[operand.id].kind != ir::RecipeKind::kTuple)
        continue;
      ir::collectValues(trace_, trace_.recipes[operand.id].parts, given);
    }
    const bool named = operands[0].kind == ir::OperandKind::kConst && operands[0].id < consts_.size();
    Ref<> dict = pyapi::steal(PyDict_New());
    const bool ok = dict && setIn(dict.get(), "target", textObject("region")) &&
                    setIn(dict.get(), "by", pyapi::newRef(named ? consts_[operands[0].id].get() : Py_None)) &&
                    setIn(dict.get(), "opens",
                          pyapi::newRef(ins.region == ir::RegionMark::kOpens ? Py_True : Py_False)) &&
                    setIn(dict.get(), "given", ids(given));
    return ok ? std::move(dict) : Ref<>();
  }

  Ref<> operation(const Instruction& ins) const {
    Ref<> dict = pyapi::steal(PyDict_New());
    Ref<> results = pyapi::steal(PyList_New(0));
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      const ValueId value = ins.firstResult + r;
      if (!results || !appendTo(results.get(), used_.contains(value) ? id(value) : pyapi::newRef(Py_None))) {
        return {};
      }
    }
    const std::string name = ins.op == Op::kAten ? trace_.opNames[ins.opName] : ir::opInfo(ins.op).text;
    const bool ok = dict && setIn(dict.get(), "target", textObject(name)) &&
                    setIn(dict.get(), "args",
                          ins.op == Op::kGuardMeta
                              ? checkedMeta(ins)
                              : operandObjects(trace_, trace_.operandsOf(ins), Describing::kOperators)) &&
                    setIn(dict.get(), "results", std::move(results)) &&
                    (!sizesOfData(ins) || setIn(dict.get(), "sizes_of_data", pyapi::newRef(Py_True)));
    return ok ? std::move(dict) : Ref<>();
  }

  // The tensor, and what a guard says of it, as arguments of kintsugi.backends.checks.looks_like().
  Ref<> checkedMeta(const Instruction& ins) const {
    const auto operands = trace_.operandsOf(ins);
    const ir::TensorDesc& desc = trace_.metas[static_cast<size_t>(operands[1].i)];
    Ref<> args = operandObjects(trace_, operands.first(1), Describing::kOperators);
    const bool ok =
        args && appendTo(args.get(), torchapi::dtypeObject(static_cast<int64_t>(desc.dtype))) &&
        appendTo(args.get(), torchapi::deviceObject(ir::deviceName(desc.device))) &&
        appendTo(args.get(), knownSizes(desc.sizes)) &&
        appendTo(args.get(), desc.isOpen() ? pyapi::newRef(Py_None) : knownSizes(desc.strides)) &&
        appendTo(args.get(),
                 desc.contiguity == ir::Contiguity::kEither
                     ? pyapi::newRef(Py_None)
                     : pyapi::newRef(desc.contiguity == ir::Contiguity::kContiguous ? Py_True : Py_False)) &&
        appendTo(args.get(), pyapi::newRef(desc.requiresGrad ? Py_True : Py_False)) &&
        appendTo(args.get(), pyapi::newRef(isTensorItself(desc) ? Py_True : Py_False));
    return ok ? std::move(args) : Ref<>();
  }

  static bool isTensorItself(const ir::TensorDesc& desc) {
    return torchapi::isExactTensorType(static_cast<PyTypeObject*>(desc.pyType));
  }

  // Those that are not compared are None.
  static Ref<> knownSizes(std::span<const int64_t> sizes) {
    Ref<> list = pyapi::steal(PyList_New(0));
    for (const int64_t size : sizes) {
      if (!list || !appendTo(list.get(), size == ir::kAnySize ? pyapi::newRef(Py_None)
                                                              : pyapi::steal(PyLong_FromLongLong(size)))) {
        return {};
      }
    }
    return list;
  }

  // Do the sizes of what it makes depend on the contents of its arguments?
  bool sizesOfData(const Instruction& ins) const {
    if (ins.op != Op::kAten) {
      return false;
    }
    const torchapi::OpEffects effects = torchapi::opEffects(trace_.opNames[ins.opName]);
    return effects.dynamicSizes ||
           (effects.sizesFromMask && !trace_.hasFixedSizes(trace_.values[ins.firstResult]));
  }

  const guard::Document& document_;
  const std::span<const Ref<>> consts_;
  const ir::Trace& trace_;
  const ir::SegmentRange range_;
  const StopMaker makeStop_;
  const std::vector<ir::SegmentStop> stops_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::unordered_set<ValueId> used_;
};

}  // namespace

namespace {

// Nothing is known of wrappers of tensors in transforms.
std::optional<passes::WriteCounts> countsOf(const ir::Trace& trace, const ir::SegmentRange& range) {
  const auto code = std::span(trace.code).subspan(range.begin, range.end - range.begin);
  const bool transforms =
      std::ranges::any_of(code, [](const Instruction& ins) { return ins.region != ir::RegionMark::kNone; });
  if (transforms) return std::nullopt;
  return passes::writeCounts(trace, range, ir::findStops(trace, range), torchapi::countsWritesOnce,
                             [](std::string_view name) {
                               const torchapi::OpEffects effects = torchapi::opEffects(name);
                               return effects.writes || effects.writesUnseen;
                             });
}

}  // namespace

uint32_t runTracePasses(guard::Document& document, uint32_t start, TracePasses wanted) {
  passes::PassManager manager;
  manager.setInput(start == 0 ? ir::VerifierMode::kRecorded : ir::VerifierMode::kContinued);
  if (wanted.segments) manager.add(*passes::findPass("segments"));
  passes::PassUnit unit{document, {operatorTraits, start, wanted.native, wanted.gradients}};
  manager.run(unit);
  return unit.segments.start;
}

pyapi::Ref<> describeSegments(const runtime::CompiledTrace& trace) {
  faultPoint("described");
  guard::Document document = trace.recording().document;
  if (ir::findSegments(document.trace).empty()) {
    runTracePasses(document, trace.recording().start, {.segments = true});
  }
  Ref<> list = pyapi::steal(PyList_New(0));
  for (const ir::SegmentRange& range : ir::findSegments(document.trace)) {
    const std::string name = document.trace.function + "_" + std::to_string(PyList_GET_SIZE(list.get()));
    if (!appendTo(list.get(), Describer(document, range, trace.recording().consts).describe(name))) {
      return {};
    }
  }
  return list;
}

void prepareBackend(PyObject* backend) {
  const Ref<> prepare = pyapi::steal(PyObject_GetAttrString(backend, "prepare"));
  const Ref<> done = prepare ? pyapi::steal(PyObject_CallNoArgs(prepare.get())) : Ref<>();
  PyErr_Clear();  // what is wrong with a backend is said where it is used
}

bool attachBackend(runtime::CompiledTrace& trace, PyObject* backend, const pyapi::Arguments* args,
                   const std::string& name) {
  const guard::Document& document = trace.recording().document;
  // A call that has changed what its own guards look at may have made a trace that never runs.
  runtime::SlotBuffer slots;
  slots.reserve(document.sources.nodes.size());
  const bool atEntry = !torchapi::operatorsCallPython() &&
                       trace.recording().globalStates.front().isCurrent() &&
                       (args == nullptr || trace.guards().check(0, *args, nullptr, slots.data()));
  const std::vector<Ref<>> objects =
      atEntry && args != nullptr ? runtime::resolveSources(trace.recording(), *args) : std::vector<Ref<>>();
  Examples examplesOf(trace.recording(), objects);
  const std::vector<ir::SegmentRange> ranges = ir::findSegments(document.trace);
  size_t runner = 0;
  for (size_t k = 0; k < ranges.size(); ++k) {
    if (ranges[k].begin < trace.recording().start) {
      continue;  // the parent's
    }
    std::vector<ValueId> outputs;
    ir::collectValues(document.trace, document.trace.operandsOf(document.trace.code[ranges[k].end]), outputs);
    std::vector<ValueKind> kinds;
    for (const ValueId value : outputs) {
      kinds.push_back(torchapi::kindOfType(document.trace.values[value].kind));
    }
    const diag::SourceLoc place{document.trace.file, document.trace.line, document.trace.function};
    auto made =
        std::make_shared<FxRunner>(backend, std::move(kinds), kindsOfStops(document.trace, ranges[k]), place);
    const StopMaker stopOf = [&made](size_t number) { return makeStop(made, number); };
    Ref<> description =
        Describer(document, ranges[k], trace.recording().consts, stopOf)
            .describe((name.empty() ? document.trace.function : name) + "_" + std::to_string(k));
    if (!description) {
      return false;
    }
    made->describe(std::move(description));
    made->setWriteCounts(countsOf(document.trace, ranges[k]));
    const StateAt state = stateAt(trace.recording(), ranges[k].begin);
    Ref<> examples = atEntry && state.known ? examplesOf.of(ranges[k]) : Ref<>();
    const GradModeScope mode(state.gradMode);
    if (examples && !made->compileAhead(std::move(examples), examplesOf.takeMade())) {
      return false;
    }
    trace.replay().setRunner(runner++, std::move(made));
  }
  KINTSUGI_CHECK(runner == trace.replay().code().segments.size(), runner, " runners for ",
                 trace.replay().code().segments.size(), " segments");
  return true;
}

size_t countGraphs(runtime::CompiledTrace& trace) {
  size_t count = 0;
  for (const runtime::SegmentCode& segment : trace.replay().code().segments) {
    count += segment.runner != nullptr ? segment.runner->graphs() : 0;
  }
  trace.sides().each([&](uint32_t, const runtime::SideLink& link) { count += countGraphs(*link.trace); });
  return count;
}

}  // namespace kintsugi::driver
