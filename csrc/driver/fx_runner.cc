#include "driver/fx_runner.h"

#include <algorithm>
#include <utility>

#include "diag/events.h"
#include "driver/fx_examples.h"
#include "driver/operand_objects.h"
#include "ir/segment_stops.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/text.h"
#include "runtime/run_events.h"
#include "runtime/segment_steps.h"
#include "torchapi/function_modes.h"
#include "torchapi/global_state.h"
#include "torchapi/tensor_desc.h"
#include "torchapi/write_versions.h"

namespace kintsugi::driver {

using ir::ValueId;
using pyapi::Ref;
using torchapi::Value;
using torchapi::ValueKind;

namespace {

// The class of a backend's own errors, as opposed to those of the program that it runs. Borrowed.
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

// Do the inputs of a run look like the examples that the graph was compiled with?
bool areLike(PyObject* examples, std::span<PyObject* const> inputs) {
  for (size_t k = 0; k < inputs.size(); ++k) {
    PyObject* example = PyList_GET_ITEM(examples, static_cast<Py_ssize_t>(k));
    if (!torchapi::isTensor(example) || example == inputs[k]) {
      continue;
    }
    ir::TensorDesc expected = torchapi::describe(example);
    const ir::TensorDesc seen = torchapi::describe(inputs[k]);
    expected.pyType = seen.pyType;
    expected.isLeaf = seen.isLeaf;
    expected.isParam = seen.isParam;
    if (!(expected == seen)) {
      return false;
    }
  }
  return true;
}

// Are these real tensors, and not fake ones of a tracer that runs the graph? Tracers are dispatch modes. The
// function modes on the stack are the program's.
bool areReal(std::span<PyObject* const> objects) {
  return !torchapi::hasDispatchModes() && std::all_of(objects.begin(), objects.end(), [](PyObject* object) {
    return !torchapi::isTensor(object) ||
           (torchapi::isExactTensorType(Py_TYPE(object)) && torchapi::describe(object).plain);
  });
}

// The state of the builtin function that a graph calls at a stop; its `self` is a capsule with one of these.
struct StopHandle {
  static constexpr const char* kName = "kintsugi.stop";
  std::weak_ptr<FxRunner> runner;
  size_t number = 0;
};

// The innermost run of each runner on this thread: does autograd follow an input?
struct CurrentRun {
  CurrentRun(const FxRunner* runner, bool followed)
      : runner(runner), followed(followed), outer(std::exchange(innermost, this)) {}
  ~CurrentRun() { innermost = outer; }
  CurrentRun(const CurrentRun&) = delete;
  static bool isFollowed(const FxRunner* runner) {
    const CurrentRun* run = innermost;
    while (run != nullptr && run->runner != runner) run = run->outer;
    return run == nullptr || run->followed;
  }
  const FxRunner* runner;
  bool followed;
  CurrentRun* outer;
  static thread_local CurrentRun* innermost;
};

thread_local CurrentRun* CurrentRun::innermost = nullptr;

PyObject* callStop(PyObject* capsule, PyObject* const* args, Py_ssize_t count) {
  auto* handle = static_cast<StopHandle*>(PyCapsule_GetPointer(capsule, StopHandle::kName));
  const std::shared_ptr<FxRunner> runner = handle != nullptr ? handle->runner.lock() : nullptr;
  if (!runner) {
    PyErr_SetString(backendError(), "the trace of this graph is gone");
    return nullptr;
  }
  return runner->stop(handle->number, {args, static_cast<size_t>(count)}).release();
}

}  // namespace

std::vector<StopKinds> kindsOfStops(const ir::Trace& trace, const ir::SegmentRange& range) {
  std::vector<bool> ofNothing(trace.values.size(), false);
  std::vector<ValueId> used;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    const ir::Instruction& ins = trace.code[i];
    if (ins.op != ir::Op::kAten || ins.resultCount != 1) continue;
    used.clear();
    ir::collectValues(trace, trace.operandsOf(ins), used);
    ofNothing[ins.firstResult] = used.empty();
  }
  std::vector<StopKinds> all;
  for (const ir::SegmentStop& stop : ir::findStops(trace, range)) {
    StopKinds& kinds = all.emplace_back();
    kinds.made = stop.made.size();
    for (const ValueId value : stop.given) {
      kinds.given.push_back(torchapi::kindOfType(trace.values[value].kind));
      kinds.ofNothing.push_back(ofNothing[value]);
    }
  }
  return all;
}

size_t FxRunner::graphs() const {
  if (!compiled_) return 0;
  Ref<> count = pyapi::steal(PyObject_GetAttrString(compiled_.get(), "_kintsugi_graphs"));
  const size_t graphs = count && PyLong_Check(count.get()) ? PyLong_AsSize_t(count.get()) : 1;
  PyErr_Clear();
  return graphs;
}

bool FxRunner::compile(Ref<> examples) {
  compiling_ = true;
  const torchapi::FunctionModesOff off;
  const GradModeScope kept(torchapi::gradMode());  // a backend may leave another one
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

runtime::SegmentRunner::Status FxRunner::run(std::span<const Value> inputs, std::span<Value> outputs) {
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
  // Where the program's own code runs behind operators, a graph that raises can't be run again.
  if (compiling_ ||
      torchapi::operatorsCallPython()) {  // ... on another thread, or further up this one's stack
    return Status::kDeclined;
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
  // A graph that is left at a guard in most runs is not run any longer.
  if (++runs_ > kMeasuredRuns && sideExits_ * 2 > runs_) {
    return Status::kDeclined;
  }
  const Ref<> compiled = compiled_.clone();
  const torchapi::FunctionModesOff off;
  const std::optional<torchapi::WriteVersions> before =
      writeCounts_ ? std::optional<torchapi::WriteVersions>(inputs) : std::nullopt;
  const CurrentRun current(this, !before || before->isFollowed());
  const Ref<> results = pyapi::steal(PyObject_Vectorcall(
      compiled.get(), args.data() + 1, inputs.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!results) {
    noteSideExit();
    return PyErr_ExceptionMatches(backendError()) != 0 ? Status::kFailed : Status::kRaised;
  }
  if (results.get() == Py_NotImplemented) {
    return Status::kDeclined;
  }
  if (!take(results.get(), outputs)) return Status::kFailed;
  if (before) countWrites(*before, outputs);
  return Status::kOk;
}

void FxRunner::countWrites(const torchapi::WriteVersions& before, std::span<const Value> outputs) const {
  if (before.isFollowed()) return;
  if (!writeCounts_->inputs.empty()) before.count(writeCounts_->inputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (const auto version = writeCounts_->outputs[k]) torchapi::WriteVersions::set(outputs[k], *version);
  }
}

// Backends return tuples, lists, or the value alone.
bool FxRunner::take(PyObject* results, std::span<Value> outputs) {
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

std::string FxRunner::backendName() const {
  Ref<> name = pyapi::steal(PyObject_GetAttrString(backend_.get(), "name"));
  PyErr_Clear();
  return pyapi::utf8(name.get());
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
  const bool counts = writeCounts_ && !CurrentRun::isFollowed(this);
  bool ok = true;
  for (size_t k = 0; ok && k < in.size(); ++k) {
    ok = torchapi::unbox(given[k], kinds.given[k], in[k]);
    if (ok && kinds.ofNothing[k]) {
      torchapi::WriteVersions::set(in[k], 0);
    } else if (const auto version = counts ? writeCounts_->stops[number][k] : std::nullopt; ok && version) {
      torchapi::WriteVersions::set(in[k], *version);
    }
  }
  if (!ok) {
    PyErr_SetString(backendError(), "a backend gives a step something of another kind than its graph does");
  }
  const torchapi::FunctionModesBack back;
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

}  // namespace kintsugi::driver
