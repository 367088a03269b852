#include "driver/fx_segments.h"

#include <atomic>
#include <unordered_set>

#include "driver/operand_objects.h"
#include "ir/segments.h"
#include "passes/pass_manager.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "runtime/run_events.h"
#include "runtime/segment_runner.h"
#include "runtime/trace_cache.h"
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
  traits.sizesFromMask = effects.sizesFromMask;
  traits.impure = effects.writes || effects.writesUnseen || effects.random;
  traits.writes = effects.writes && !effects.writesUnseen && !effects.random;
  traits.fresh = effects.freshResults;
  traits.collective = effects.collective;
  return traits;
}

namespace {

// Writes the dict that describes one segment. Each method returns null or false with an exception pending.
class Describer {
 public:
  Describer(const guard::Document& document, const ir::SegmentRange& range)
      : document_(document), trace_(document.trace), range_(range) {
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range.begin]), inputs_);
    ir::collectValues(trace_, trace_.operandsOf(trace_.code[range.end]), outputs_);
    used_.insert(outputs_.begin(), outputs_.end());
    std::vector<ValueId> values;
    forEachGraphInstruction([&](const Instruction& ins) {
      ir::collectValues(trace_, trace_.operandsOf(ins), values);
      return true;
    });
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
      if (ir::isInGraph(trace_.code[i]) && !visit(trace_.code[i])) {
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
    const bool ok = list && forEachGraphInstruction(
                                [&](const Instruction& ins) { return appendTo(list.get(), operation(ins)); });
    return ok ? std::move(list) : Ref<>();
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
        setIn(dict.get(), "results", std::move(results));
    return ok ? std::move(dict) : Ref<>();
  }

  const guard::Document& document_;
  const ir::Trace& trace_;
  const ir::SegmentRange range_;
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

class FxRunner final : public runtime::SegmentRunner {
 public:
  // `place`: of the trace's entry.
  FxRunner(PyObject* backend, Ref<> description, std::vector<ValueKind> outputs, diag::SourceLoc place)
      : backend_(pyapi::newRef(backend)),
        description_(std::move(description)),
        outputs_(std::move(outputs)),
        place_(std::move(place)) {}

  bool needsGil() const override { return true; }

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
    description_.reset();
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
    if (!compiled_) {
      if (compiling_) {
        return Status::kDeclined;  // on another thread, or further up this one's stack
      }
      Ref<> examples = pyapi::steal(PyList_New(0));
      for (size_t i = 1; i < args.size(); ++i) {
        appendTo(examples.get(), pyapi::newRef(args[i]));
      }
      if (!compile(std::move(examples))) {
        return Status::kFailed;
      }
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
  Ref<> description_;  // until it is compiled
  std::vector<ValueKind> outputs_;
  diag::SourceLoc place_;
  Ref<> compiled_;
  bool compiling_ = false;  // GIL
};

// Does whatever runs before instruction `end` leave the grad mode, autocast and the like as they were at
// entry?
bool startsInEntryState(const ir::Trace& trace, uint32_t end) {
  for (uint32_t i = 0; i < end; ++i) {
    const Instruction& ins = trace.code[i];
    const bool quiet = ins.op == Op::kInput || ins.op == Op::kSegment || ins.op == Op::kSegmentEnd ||
                       ins.deferrable || ins.op == Op::kBuild || ins.op == Op::kCallPure ||
                       (ins.op >= Op::kGuardTrue && ins.op <= Op::kGuardBlock) ||
                       (ir::isGraphOp(ins.op) && ins.op != Op::kSetGrad);
    if (!quiet) {
      return false;
    }
  }
  return true;
}

// The real inputs of a segment that takes nothing but what the entry guards resolve; else empty, without an
// exception.
Ref<> examplesAtEntry(const ir::Trace& trace, const guard::SourceTable& sources,
                      const ir::SegmentRange& range, PyObject* const* slots) {
  std::unordered_map<ValueId, ir::SourceId> entry;
  for (const Instruction& ins : trace.code) {
    if (ins.op == Op::kInput && sources.nodes[trace.operandsOf(ins)[0].id].block == 0) {
      entry[ins.firstResult] = trace.operandsOf(ins)[0].id;
    }
  }
  std::vector<ValueId> inputs;
  ir::collectValues(trace, trace.operandsOf(trace.code[range.begin]), inputs);
  Ref<> list = pyapi::steal(PyList_New(0));
  for (const ValueId value : inputs) {
    const auto found = entry.find(value);
    if (found == entry.end() || !appendTo(list.get(), pyapi::newRef(slots[found->second]))) {
      PyErr_Clear();
      return {};
    }
  }
  return list;
}

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
  runtime::SlotBuffer slots;
  slots.reserve(document.sources.nodes.size());
  // The call may have changed what its own guards look at.
  const bool known = args != nullptr && trace.recording().globalStates.front().isCurrent() &&
                     trace.guards().check(0, *args, nullptr, slots.data());
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
    Ref<> description =
        Describer(document, ranges[k])
            .describe((name.empty() ? document.trace.function : name) + "_" + std::to_string(k));
    if (!description) {
      return false;
    }
    const diag::SourceLoc place{document.trace.file, document.trace.line, document.trace.function};
    auto made = std::make_shared<FxRunner>(backend, std::move(description), std::move(kinds), place);
    Ref<> examples = known && startsInEntryState(document.trace, ranges[k].begin)
                         ? examplesAtEntry(document.trace, document.sources, ranges[k], slots.data())
                         : Ref<>();
    if (examples && !made->compile(std::move(examples))) {
      return false;
    }
    trace.replay().setRunner(runner++, std::move(made));
  }
  return true;
}

}  // namespace kintsugi::driver
