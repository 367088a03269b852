#include "driver/fx_segments.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "driver/operand_objects.h"
#include "ir/reach.h"
#include "ir/segment_stops.h"
#include "ir/segments.h"
#include "passes/pass_manager.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "runtime/guard_explain.h"
#include "runtime/replay_program.h"
#include "runtime/run_events.h"
#include "runtime/segment_runner.h"
#include "runtime/segment_steps.h"
#include "runtime/trace_cache.h"
#include "torchapi/example_tensor.h"
#include "torchapi/global_state.h"
#include "torchapi/op_effects.h"

namespace kintsugi::driver {

using ir::Instruction;
using ir::Op;
using ir::TypeKind;
using ir::ValueId;
using pyapi::Ref;
using torchapi::Value;
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
  traits.fresh = effects.freshResults;
  traits.collective = effects.collective;
  return traits;
}

namespace {

// Makes the function that a graph calls at its n-th stop; empty: graphs are only to be looked at.
using StopMaker = std::function<Ref<>(size_t)>;

// Writes the dict that describes one segment. Each method returns null or false with an exception pending.
class Describer {
 public:
  Describer(const guard::Document& document, const ir::SegmentRange& range, StopMaker makeStop = {})
      : document_(document),
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
              setIn(dict.get(), "dynamic", dynamicInputs()) && setIn(dict.get(), "ops", operations()) &&
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

  Ref<> operations() {
    Ref<> list = pyapi::steal(PyList_New(0));
    size_t stops = 0;
    const bool ok = list && forEachGraphInstruction([&](const Instruction& ins) {
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
    const bool ok =
        dict && setIn(dict.get(), "target", textObject(name)) &&
        setIn(dict.get(), "args", operandObjects(trace_, trace_.operandsOf(ins), Describing::kOperators)) &&
        setIn(dict.get(), "results", std::move(results)) &&
        (!sizesOfData(ins) || setIn(dict.get(), "sizes_of_data", pyapi::newRef(Py_True)));
    return ok ? std::move(dict) : Ref<>();
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
  const ir::Trace& trace_;
  const ir::SegmentRange range_;
  const StopMaker makeStop_;
  const std::vector<ir::SegmentStop> stops_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::unordered_set<ValueId> used_;
};

// Errors of backends, as against those of the program that they run.
PyObject* backendError() {
  static constinit pyapi::Lazy<PyObject*> typeSlot;
  PyObject* type = typeSlot.get([] {
    PyObject *pending = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&pending, &value, &traceback);
    Ref<> module = pyapi::steal(pyapi::importModule("kintsugi.backends.fx"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "BackendError") : nullptr;
    PyErr_Restore(pending, value, traceback);
    return found;
  });
  return type != nullptr ? type : PyExc_SystemError;
}

// What goes into a stop of a graph, and how many tensors come out.
struct StopKinds {
  std::vector<ValueKind> given;
  size_t made = 0;
};

class FxRunner final : public runtime::SegmentRunner {
 public:
  // `place`: of the trace's entry.
  FxRunner(PyObject* backend, std::vector<ValueKind> outputs, std::vector<StopKinds> stops,
           diag::SourceLoc place)
      : backend_(pyapi::newRef(backend)),
        outputs_(std::move(outputs)),
        stops_(std::move(stops)),
        place_(std::move(place)) {}
  // Before it is compiled.
  void describe(Ref<> description) { description_ = std::move(description); }

  // The graph has come to a stop. Null: an exception is pending.
  Ref<> stop(size_t number, std::span<PyObject* const> given);

  bool needsGil() const override { return true; }
  void left() override { ++left_; }
  size_t graphs() const override {
    Ref<> count =
        compiled_ ? pyapi::steal(PyObject_GetAttrString(compiled_.get(), "_kintsugi_graphs")) : Ref<>();
    const size_t graphs = count && PyLong_Check(count.get()) ? PyLong_AsSize_t(count.get()) : 1;
    PyErr_Clear();
    return graphs;
  }

  // The same, before the segment has run. `promised`: the examples that were made up, and None for others,
  // for the first run to look at; null: there are none.
  bool compileAhead(Ref<> examples, Ref<> promised) {
    examples_ = std::move(promised);
    return compile(std::move(examples));
  }

  // False: the backend's exception is pending. `examples`: list of the inputs.
  bool compile(Ref<> examples) {
    compiling_ = true;
    runtime::ScopedEvent event;
    if (diag::events::on()) {
      event.begin({.stack = diag::events::intern(diag::events::stackText({place_})),
                   .name = diag::events::intern(backendName()),
                   .kind = diag::events::Kind::kCompile});
    }
    Ref<> description = pyapi::steal(PyDict_Copy(description_.get()));
    const bool ok = description && setIn(description.get(), "example_inputs", std::move(examples));
    Ref<> made = ok ? pyapi::steal(PyObject_CallOneArg(backend_.get(), description.get())) : Ref<>();
    compiling_ = false;
    if (!made) {
      return false;
    }
    // What only makes a tuple of the results is not needed: they are looked at here.
    compiled_ = pyapi::steal(PyObject_GetAttrString(made.get(), "_kintsugi_direct"));
    if (!compiled_) {
      PyErr_Clear();
      compiled_ = std::move(made);
    }
    if (!examples_) {
      description_.reset();
    }
    return true;
  }

  Status run(std::span<const Value> inputs, std::span<Value> outputs) override {
    std::vector<Ref<>> owned;
    std::vector<PyObject*> args = {nullptr};
    args.reserve(inputs.size() + 1);
    for (const Value& input : inputs) {
      if (input.kind == ValueKind::kObject) {
        args.push_back(input.object);  // the run holds it
        continue;
      }
      owned.push_back(pyapi::steal(torchapi::box(input)));
      if (!owned.back()) {
        return Status::kFailed;
      }
      args.push_back(owned.back().get());
    }
    if (compiling_) {
      return Status::kDeclined;  // on another thread, or further up this one's stack
    }
    if (const Ref<> examples = std::move(examples_)) {
      if (!areLike(examples.get(), {args.data() + 1, inputs.size()})) {
        compiled_.reset();
      } else {
        description_.reset();
      }
    }
    if (!compiled_) {
      Ref<> examples = pyapi::steal(PyList_New(0));
      for (size_t i = 1; i < args.size(); ++i) {
        appendTo(examples.get(), pyapi::newRef(args[i]));
      }
      if (!compile(std::move(examples))) {
        return Status::kFailed;
      }
    }
    // What is left at a guard in most runs costs more than it brings.
    if (++runs_ > kMeasuredRuns && left_ * 2 > runs_) {
      return Status::kDeclined;
    }
    const Ref<> compiled = compiled_.clone();
    const Ref<> results = pyapi::steal(PyObject_Vectorcall(
        compiled.get(), args.data() + 1, inputs.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (!results) {
      return PyErr_ExceptionMatches(backendError()) != 0 ? Status::kFailed : Status::kRaised;
    }
    if (results.get() == Py_NotImplemented) {
      return Status::kDeclined;
    }
    return take(results.get(), outputs) ? Status::kOk : Status::kFailed;
  }

 private:
  // Are tensors what they were taken for before they were there?
  static bool areLike(PyObject* examples, std::span<PyObject* const> inputs) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      PyObject* example = PyList_GET_ITEM(examples, static_cast<Py_ssize_t>(k));
      if (!torchapi::isTensor(example) || example == inputs[k]) {
        continue;
      }
      torchapi::TensorInfo expected = torchapi::tensorInfoOf(example);
      const torchapi::TensorInfo seen = torchapi::tensorInfoOf(inputs[k]);
      expected.pyType = seen.pyType;
      expected.isLeaf = seen.isLeaf;
      expected.isParam = seen.isParam;
      expected.storageOffset = seen.storageOffset;
      if (!(expected == seen)) {
        return false;
      }
    }
    return true;
  }

  // Backends return tuples, lists, or the value alone.
  bool take(PyObject* results, std::span<Value> outputs) {
    const bool sequence = PyTuple_Check(results) || PyList_Check(results);
    const size_t count = sequence ? static_cast<size_t>(Py_SIZE(results)) : 1;
    if (count != outputs.size()) {
      PyErr_Format(backendError(), "a backend's function returned %zu values, the graph has %zu", count,
                   outputs.size());
      return false;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < outputs.size(); ++i) {
      PyObject* object = sequence ? PySequence_Fast_GET_ITEM(results, static_cast<Py_ssize_t>(i)) : results;
      if (outputs_[i] == ValueKind::kNone) {
        outputs[i].kind = ValueKind::kNone;
      } else {
        ok = torchapi::unbox(object, outputs_[i], outputs[i]);
      }
    }
    if (!ok) {
      for (Value& output : outputs) {
        torchapi::clear(output);
      }
      PyErr_SetString(backendError(),
                      "a backend's function returned something of another kind than its graph does");
    }
    return ok;
  }

  std::string backendName() const {
    Ref<> name = pyapi::steal(PyObject_GetAttrString(backend_.get(), "name"));
    const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
    if (text == nullptr) PyErr_Clear();
    return text != nullptr ? text : "";
  }

  Ref<> backend_;
  Ref<> description_;  // until it is compiled, and the examples have been compared with a run's inputs
  Ref<> examples_;     // that a first run is to be compared with
  std::vector<ValueKind> outputs_;
  std::vector<StopKinds> stops_;
  diag::SourceLoc place_;
  Ref<> compiled_;
  bool compiling_ = false;  // GIL
  static constexpr uint64_t kMeasuredRuns = 8;
  uint64_t runs_ = 0;  // GIL
  uint64_t left_ = 0;  // ... that were left at a guard inside
};

// Are these the tensors of a run, and not those of a tracer that looks at the graph?
bool areReal(std::span<PyObject* const> objects) {
  return !torchapi::hasModes() && std::all_of(objects.begin(), objects.end(), [](PyObject* object) {
    return !torchapi::isTensor(object) ||
           (torchapi::isExactTensorType(Py_TYPE(object)) && torchapi::tensorInfoOf(object).plain);
  });
}

Ref<> FxRunner::stop(size_t number, std::span<PyObject* const> given) {
  runtime::SegmentSteps* steps = compiled_ && !compiling_ ? runtime::stepsOf(this) : nullptr;
  const StopKinds& kinds = stops_.at(number);
  if (steps == nullptr || given.size() != kinds.given.size() || !areReal(given)) {
    PyErr_SetString(backendError(),
                    "a step of the program is made in runs of its graph alone: it can't be traced");
    return {};
  }
  std::vector<Value> values(given.size() + kinds.made);
  const std::span<Value> in(values.data(), given.size()), out(values.data() + given.size(), kinds.made);
  bool ok = true;
  for (size_t k = 0; ok && k < in.size(); ++k) {
    ok = torchapi::unbox(given[k], kinds.given[k], in[k]);
  }
  if (!ok) {
    PyErr_SetString(backendError(), "a backend gives a step something of another kind than its graph does");
  }
  ok = ok && steps->stop(number, in, out);
  Ref<> made = ok ? pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(out.size()))) : Ref<>();
  for (size_t k = 0; made && k < out.size(); ++k) {
    PyObject* object = torchapi::box(out[k]);
    if (object == nullptr) {
      made = Ref<>();
    } else {
      PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(k), object);
    }
  }
  std::for_each(values.begin(), values.end(), [](Value& value) { torchapi::clear(value); });
  return made;
}

// What a graph calls at a stop: a builtin function whose `self` holds one of these.
struct StopHandle {
  static constexpr const char* kName = "kintsugi.stop";
  std::weak_ptr<FxRunner> runner;
  size_t number = 0;
};

PyObject* callStop(PyObject* capsule, PyObject* const* args, Py_ssize_t count) {
  auto* handle = static_cast<StopHandle*>(PyCapsule_GetPointer(capsule, StopHandle::kName));
  const std::shared_ptr<FxRunner> runner = handle != nullptr ? handle->runner.lock() : nullptr;
  if (!runner) {
    PyErr_SetString(backendError(), "the trace of this graph is gone");
    return nullptr;
  }
  return runner->stop(handle->number, {args, static_cast<size_t>(count)}).release();
}

Ref<> makeStop(std::weak_ptr<FxRunner> runner, size_t number) {
  static PyMethodDef method = {"step", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(callStop)),
                               METH_FASTCALL, nullptr};
  auto handle = std::make_unique<StopHandle>(StopHandle{std::move(runner), number});
  const Ref<> capsule = pyapi::steal(PyCapsule_New(handle.get(), StopHandle::kName, [](PyObject* gone) {
    delete static_cast<StopHandle*>(PyCapsule_GetPointer(gone, StopHandle::kName));
  }));
  if (!capsule) {
    return {};
  }
  handle.release();  // the capsule's
  return pyapi::steal(PyCFunction_New(&method, capsule.get()));
}

std::vector<StopKinds> kindsOfStops(const ir::Trace& trace, const ir::SegmentRange& range) {
  std::vector<StopKinds> all;
  for (const ir::SegmentStop& stop : ir::findStops(trace, range)) {
    StopKinds& kinds = all.emplace_back();
    kinds.made = stop.made.size();
    for (const ValueId value : stop.given) {
      kinds.given.push_back(torchapi::kindOfType(trace.values[value].kind));
    }
  }
  return all;
}

// The state in which instruction `end` runs, as far as a trace tells.
struct StateAt {
  bool known = true;  // autocast and the like are as they were at entry
  bool gradMode = true;
};
StateAt stateAt(const runtime::Recording& recording, uint32_t end) {
  const ir::Trace& trace = recording.document.trace;
  std::unordered_map<ValueId, const torchapi::StateBehind*> behind;
  for (const torchapi::StateBehind& each : recording.statesBehind) {
    behind[each.call] = &each;
  }
  StateAt state{.gradMode = torchapi::gradMode()};
  for (uint32_t i = 0; i < end; ++i) {
    const Instruction& ins = trace.code[i];
    if (ins.op == Op::kCall || ins.op == Op::kCallKnown) {
      const auto found = behind.find(ins.firstResult);
      state.known = found != behind.end() && found->second->like;
      state.gradMode = state.known ? found->second->gradMode : state.gradMode;
    } else if (ins.op == Op::kSetGrad) {
      const ir::Operand& mode = trace.operandsOf(ins)[0];
      state.known = state.known && !mode.isValue();
      state.gradMode = mode.i != 0;
    }
  }
  return state;
}

// Inputs for segments that are compiled before they run: the objects that the entry guards resolve, and for
// tensors that the trace has made others that look like them.
class Examples {
 public:
  // `objects`: what lies at the sources; empty if that is not at hand.
  Examples(const runtime::Recording& recording, const std::vector<Ref<>>& objects)
      : recording_(recording), trace_(recording.document.trace), objects_(objects), walker_(trace_) {
    for (const Instruction& ins : trace_.code) {
      if (ins.op == Op::kInput) {
        sources_[ins.firstResult] = trace_.operandsOf(ins)[0].id;
      }
    }
  }

  // Empty, without an exception: nobody knows what they look like. A step may have changed what it was given.
  Ref<> of(const ir::SegmentRange& range) {
    for (; seen_ < range.begin; ++seen_) {
      Instruction ins = trace_.code[seen_];
      ins.snap = ir::kNone;
      if (ins.op == Op::kCall || ins.op == Op::kCallKnown || ins.op == Op::kBuild) {
        walker_.instruction(
            ins, [this](ValueId value) { given_.insert(value); }, [](ir::SourceId) {});
      }
    }
    std::vector<ValueId> inputs;
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range.begin]), inputs);
    Ref<> list = pyapi::steal(PyList_New(0));
    made_ = pyapi::steal(PyList_New(0));
    bool any = false;
    for (const ValueId value : inputs) {
      Ref<> example = found(value);
      const bool make = !example;
      example = make ? looksLike(value) : std::move(example);
      any = any || make;
      if (!example || !appendTo(made_.get(), make ? example.clone() : pyapi::newRef(Py_None)) ||
          !appendTo(list.get(), std::move(example))) {
        PyErr_Clear();
        return {};
      }
    }
    if (!any) {
      made_.reset();
    }
    return list;
  }
  // Of the last segment: those that are no objects of the call, and None for these; null if there are none.
  Ref<> takeMade() { return std::move(made_); }

 private:
  // An object that the call was given, or has found. The call may have put another one in its place.
  Ref<> found(ValueId value) const {
    const auto source = sources_.find(value);
    if (source == sources_.end() || source->second >= objects_.size() || !objects_[source->second]) {
      return {};
    }
    PyObject* object = objects_[source->second].get();
    const ir::Type& type = trace_.values[value];
    Value unboxed;
    const bool fits = torchapi::unbox(object, torchapi::kindOfType(type.kind), unboxed);
    torchapi::clear(unboxed);
    const bool same =
        fits && (type.kind != TypeKind::kTensor || type.meta == ir::kNone ||
                 torchapi::matches(object, recording_.tensorInfos.at(type.meta), trace_.hasFixedSizes(type)));
    return same ? pyapi::newRef(object) : Ref<>();
  }

  Ref<> looksLike(ValueId value) const {
    const ir::Type& type = trace_.values[value];
    const bool known =
        type.kind == TypeKind::kTensor && trace_.hasFixedSizes(type) && !given_.contains(value);
    return known ? torchapi::exampleOf(recording_.tensorInfos.at(type.meta)) : Ref<>();
  }

  const runtime::Recording& recording_;
  const ir::Trace& trace_;
  const std::vector<Ref<>>& objects_;
  std::unordered_map<ValueId, ir::SourceId> sources_;  // of inputs
  Ref<> made_;
  ir::ReachWalker walker_;
  uint32_t seen_ = 0;                  // instructions
  std::unordered_set<ValueId> given_;  // to steps among them
};

// Sets the grad mode, and back.
class GradModeScope {
 public:
  explicit GradModeScope(bool enabled) : before_(torchapi::gradMode()) { torchapi::setGradMode(enabled); }
  ~GradModeScope() { torchapi::setGradMode(before_); }
  GradModeScope(const GradModeScope&) = delete;

 private:
  const bool before_;
};

}  // namespace

uint32_t runTracePasses(guard::Document& document, uint32_t start, TracePasses wanted) {
  passes::PassManager manager;
  manager.setInput(start == 0 ? ir::VerifierMode::kRecorded : ir::VerifierMode::kContinued);
  if (wanted.segments) {
    manager.add(
        {"segments", [&](guard::Document& recorded) {
           start = passes::cutSegments(recorded, {operatorTraits, start, wanted.native, wanted.gradients});
         }});
  }
  manager.run(document);
  return start;
}

pyapi::Ref<> describeSegments(const runtime::CompiledTrace& trace) {
  guard::Document document = trace.recording().document;
  if (ir::findSegments(document.trace).empty()) {
    runTracePasses(document, trace.recording().start, {.segments = true});
  }
  Ref<> list = pyapi::steal(PyList_New(0));
  for (const ir::SegmentRange& range : ir::findSegments(document.trace)) {
    const std::string name = document.trace.function + "_" + std::to_string(PyList_GET_SIZE(list.get()));
    if (!appendTo(list.get(), Describer(document, range).describe(name))) {
      return {};
    }
  }
  return list;
}

bool attachBackend(runtime::CompiledTrace& trace, PyObject* backend, const pyapi::Arguments* args,
                   const std::string& name) {
  const guard::Document& document = trace.recording().document;
  const bool atEntry = trace.recording().globalStates.front().isCurrent();
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
        Describer(document, ranges[k], stopOf)
            .describe((name.empty() ? document.trace.function : name) + "_" + std::to_string(k));
    if (!description) {
      return false;
    }
    made->describe(std::move(description));
    const StateAt state = stateAt(trace.recording(), ranges[k].begin);
    Ref<> examples = atEntry && state.known ? examplesOf.of(ranges[k]) : Ref<>();
    const GradModeScope mode(state.gradMode);
    if (examples && !made->compileAhead(std::move(examples), examplesOf.takeMade())) {
      return false;
    }
    trace.replay().setRunner(runner++, std::move(made));
  }
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
