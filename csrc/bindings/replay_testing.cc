#include "bindings/replay_testing.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>

#include "pyapi/containers.h"
#include "runtime/compiled_trace.h"
#include "torchapi/op_recorder.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

using recording::Recording;
using runtime::CompiledTrace;

class TestTrace {
 public:
  explicit TestTrace(Recording recording)
      : trace_(std::make_unique<CompiledTrace>(std::move(recording))),
        slotCount_(trace_->recording().document.sources.nodes.size()) {}

  nb::object run(nb::args args) {
    std::vector<PyObject*> slots(slotCount_);
    const pyapi::Arguments items(pyapi::tupleItems(args.ptr()), nb::len(args), nullptr);
    if (!trace_->guards().check(0, items, nullptr, slots.data())) {
      throw nb::value_error("the guards fail");
    }
    PyObject* result = trace_->replay().run(*trace_, items, slots.data());
    if (result == nullptr) {
      throw nb::python_error();
    }
    return nb::steal(result);
  }

  // Nanoseconds a run, guards included.
  double bench(nb::tuple args, int runs) {
    const pyapi::Arguments items(pyapi::tupleItems(args.ptr()), nb::len(args), nullptr);
    std::vector<PyObject*> slots(slotCount_);
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < runs; ++k) {
      if (!trace_->guards().check(0, items, nullptr, slots.data())) {
        throw nb::value_error("the guards fail");
      }
      PyObject* result = trace_->replay().run(*trace_, items, slots.data());
      if (result == nullptr) {
        throw nb::python_error();
      }
      Py_DECREF(result);
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    return time.count() / runs;
  }

  void forceExit(size_t index) { trace_->replay().forceExit(index); }
  std::string text() const { return guard::print(trace_->recording().document); }

 private:
  std::unique_ptr<CompiledTrace> trace_;
  size_t slotCount_;
};

// `metas`: for each metadata number of the text, a tensor that has it.
std::unique_ptr<TestTrace> parseTrace(const std::string& text, nb::list consts, nb::list metas) {
  diag::Result<guard::Document> document = guard::parse(text);
  if (!document.ok()) {
    throw nb::value_error(document.error().format().c_str());
  }
  Recording recording;
  recording.document = std::move(document).value();
  for (nb::handle object : consts) {
    recording.consts.push_back(pyapi::newRef(object.ptr()));
  }
  recording.document.trace.constCount = static_cast<uint32_t>(recording.consts.size());
  std::vector<ir::TensorDesc>& known = recording.document.trace.metas;
  for (size_t k = 0; k < nb::len(metas) && k < known.size(); ++k) {
    known[k] = torchapi::describe(metas[k].ptr());
  }
  recording.globalStates.push_back(torchapi::GlobalState::current());
  return std::make_unique<TestTrace>(std::move(recording));
}

// The operand of a result made of tensors in tuples and lists.
ir::Operand resultOperand(torchapi::OpRecorder& recorder, ir::Trace& trace, PyObject* object) {
  if (object == Py_None) {
    return ir::Operand::none();
  }
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    ir::Recipe recipe;
    recipe.kind = PyTuple_Check(object) ? ir::RecipeKind::kTuple : ir::RecipeKind::kList;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(object); ++k) {
      recipe.parts.push_back(resultOperand(recorder, trace, PySequence_Fast_GET_ITEM(object, k)));
    }
    return ir::Operand::recipe(trace.addRecipe(std::move(recipe)));
  }
  const auto value = torchapi::isTensor(object) ? recorder.valueOf(object) : std::nullopt;
  if (!value) {
    throw nb::value_error("the result holds something that no operation made");
  }
  return ir::Operand::value(*value);
}

// Records the ATen calls of `function(*args)`. `args` holds every tensor that it reads, parameters included.
std::unique_ptr<TestTrace> recordOps(nb::callable function, nb::tuple args, size_t callArgs) {
  Recording recording;
  ir::Trace& trace = recording.document.trace;
  torchapi::OpRecorder recorder;
  for (size_t k = 0; k < args.size(); ++k) {
    PyObject* tensor = args[k].ptr();
    guard::SourceNode node;
    node.index = static_cast<int64_t>(k);
    recording.document.sources.nodes.push_back(node);
    if (recorder.valueOf(tensor)) {
      continue;
    }
    const ir::MetaId meta = recorder.internMeta(trace, torchapi::describe(tensor));
    const ir::Operand source = ir::Operand::source(static_cast<ir::SourceId>(k));
    const ir::Type type{ir::TypeKind::kTensor, meta};
    const size_t at = trace.append(ir::Op::kInput, {&source, 1}, {&type, 1});
    recorder.bind(tensor, trace.code[at].firstResult, torchapi::MetaLevel::kFull);
  }
  nb::list positional;
  for (size_t k = 0; k < callArgs; ++k) {
    positional.append(args[k]);
  }
  recorder.resume();
  PyObject* result = PyObject_CallObject(function.ptr(), nb::tuple(positional).ptr());
  recorder.pause();
  if (result == nullptr) {
    throw nb::python_error();
  }
  const nb::object owned = nb::steal(result);
  const torchapi::DrainResult drained = recorder.drain(trace, ir::kNone);
  if (drained.status != torchapi::DrainResult::kOk) {
    const char* reason =
        drained.status == torchapi::DrainResult::kUnknownTensor ? "unknown tensor" : "unsupported";
    throw nb::value_error((std::string(reason) + " in " + drained.detail).c_str());
  }
  const ir::Operand returned = resultOperand(recorder, trace, result);
  trace.append(ir::Op::kRet, {&returned, 1}, {});
  return std::make_unique<TestTrace>(std::move(recording));
}

double benchGlobalState(int runs) {
  uint64_t sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < runs; ++k) {
    sum += torchapi::GlobalState::current().words[2];
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return sum == 1 ? 0 : time.count() / runs;
}

}  // namespace

void bindReplayTesting(nb::module_& parent) {
  nb::module_ m =
      parent.def_submodule("_replay_testing", "Runs hand-written traces; for the project's own tests.");
  nb::class_<TestTrace>(m, "Trace")
      .def("run", &TestTrace::run)
      .def("bench", &TestTrace::bench, nb::arg("args"), nb::arg("runs"))
      .def("force_exit", &TestTrace::forceExit, nb::arg("index"))
      .def("text", &TestTrace::text);
  m.def("parse", &parseTrace, nb::arg("text"), nb::arg("consts") = nb::list(), nb::arg("metas") = nb::list());
  m.def("record_ops", &recordOps, nb::arg("function"), nb::arg("args"), nb::arg("call_args"));
  m.def("global_state", [] { return torchapi::GlobalState::current().describe(); });
  m.def("recordable", [] { return torchapi::GlobalState::current().recordable(); });
  m.def("bench_global_state", &benchGlobalState, nb::arg("runs"));
}

}  // namespace kintsugi::bindings
