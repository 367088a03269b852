#include "bindings/guard_testing.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "pyapi/containers.h"
#include "pyapi/lazy.h"
#include "runtime/compiled_trace.h"
#include "runtime/trace_cache.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

using recording::Recording;
using runtime::GuardProgram;

constexpr const char* kSourceNames[] = {
#define KTG_KIND(name, text, parts) text,
    KINTSUGI_SOURCES(KTG_KIND)
#undef KTG_KIND
};
constexpr const char* kGuardNames[] = {
#define KTG_KIND(name, text, parts) text,
    KINTSUGI_GUARDS(KTG_KIND)
#undef KTG_KIND
};

template <size_t N>
uint8_t indexOf(const char* const (&names)[N], const std::string& name) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) {
      return static_cast<uint8_t>(i);
    }
  }
  throw nb::value_error(("unknown kind " + name).c_str());
}

// A program with the recording that it borrows from.
class TestProgram {
 public:
  explicit TestProgram(std::unique_ptr<Recording> recording)
      : recording_(std::move(recording)),
        program_(*recording_),
        slots_(recording_->document.sources.nodes.size()) {}

  // The resolved objects, or None. Block > 0 goes on from the slots of the last check.
  nb::object check(nb::tuple args, guard::BlockId block, nb::list values) {
    std::vector<PyObject*> valueArray(static_cast<size_t>(PyList_GET_SIZE(values.ptr())));
    for (size_t i = 0; i < valueArray.size(); ++i) {
      valueArray[i] = PyList_GET_ITEM(values.ptr(), i);
    }
    if (block == 0) {
      std::fill(slots_.begin(), slots_.end(), nullptr);  // those of the last call may be dead
    }
    const bool passed = program_.check(block, argsOf(args), valueArray.data(), slots_.data());
    if (PyErr_Occurred() != nullptr) {
      throw nb::python_error();
    }
    if (!passed) {
      return nb::none();
    }
    nb::list out;
    for (PyObject* slot : slots_) {
      out.append(slot == nullptr ? nb::none() : nb::borrow(slot));
    }
    return out;
  }

  std::tuple<int64_t, std::string, std::string> explain(nb::tuple args, guard::BlockId block) {
    const runtime::GuardFailure failure =
        program_.explainFailure(block, argsOf(args), nullptr, slots_.data());
    const int64_t index = failure.guard == ir::kNone ? -1 : static_cast<int64_t>(failure.guard);
    return {index, failure.expected, failure.seen};
  }

  // Nanoseconds a check: the median of `rounds` batches.
  double bench(nb::tuple args, int checks, int rounds) {
    std::vector<double> times;
    for (int r = 0; r < rounds; ++r) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < checks; ++i) {
        if (!program_.check(0, argsOf(args), nullptr, slots_.data())) {
          throw nb::value_error("the guards fail");
        }
      }
      const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
      times.push_back(time.count() / checks);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // The same with `bytes` of other memory read before each check, as a model's run would.
  double benchCold(nb::tuple args, size_t bytes, int rounds) {
    std::vector<char> other(bytes, 1);
    std::vector<double> times;
    volatile int sink = 0;
    for (int r = 0; r < rounds; ++r) {
      for (size_t i = 0; i < other.size(); i += 64) {
        sink = sink + other[i];
      }
      const auto start = std::chrono::steady_clock::now();
      program_.check(0, argsOf(args), nullptr, slots_.data());
      const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
      times.push_back(time.count());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  uint64_t hits() const { return program_.memoHits(); }
  uint64_t misses() const { return program_.memoMisses(); }
  size_t guards() const { return program_.guardCount(); }
  size_t words() const { return program_.wordCount(); }
  std::vector<ir::SourceId> pinned() const { return program_.pinnedSources(); }

 private:
  static pyapi::Arguments argsOf(const nb::tuple& args) {
    return {pyapi::tupleItems(args.ptr()), nb::len(args), nullptr};
  }

  std::unique_ptr<Recording> recording_;
  GuardProgram program_;
  std::vector<PyObject*> slots_;
};

// A trace cache, whose traces are known by their names.
class TestCache {
 public:
  explicit TestCache(size_t limit) : cache_(std::make_unique<runtime::TraceCache>(limit)) {}

  void insert(std::unique_ptr<Recording> recording) {
    cache_->insert(std::make_shared<runtime::CompiledTrace>(std::move(*recording)));
  }

  std::optional<std::string> lookup(nb::tuple args, nb::tuple kwnames) {
    runtime::SlotBuffer slots;
    const auto trace = cache_->lookup(argumentsOf(args, kwnames), slots);
    return trace ? std::optional(trace->trace().function) : std::nullopt;
  }

  std::vector<std::tuple<std::string, std::string, std::string>> explain(nb::tuple args, nb::tuple kwnames) {
    std::vector<std::tuple<std::string, std::string, std::string>> out;
    for (const runtime::MissReason& miss : cache_->explainMiss(argumentsOf(args, kwnames))) {
      out.emplace_back(miss.trace, miss.failure.expected, miss.failure.seen);
    }
    return out;
  }

  nb::dict stats() const {
    const runtime::CacheStats stats = cache_->stats();
    nb::dict out;
    out["hits"] = stats.hits;
    out["misses"] = stats.misses;
    out["recompiles"] = stats.recompiles;
    out["evictions"] = stats.evictions;
    out["busy"] = stats.busy;
    out["traces"] = stats.traces;
    return out;
  }

  void kill(const std::string& name) {
    for (const auto& trace : cache_->traces()) {
      trace->dead = trace->dead || trace->trace().function == name;
    }
  }

  std::vector<std::string> order() const {
    std::vector<std::string> names;
    for (const auto& trace : cache_->traces()) {
      names.push_back(trace->trace().function);
    }
    return names;
  }

  runtime::TraceCache& cache() { return *cache_; }

 private:
  static pyapi::Arguments argumentsOf(const nb::tuple& tuple, const nb::tuple& names) {
    return {pyapi::tupleItems(tuple.ptr()), nb::len(tuple) - nb::len(names),
            nb::len(names) == 0 ? nullptr : names.ptr()};
  }

  std::unique_ptr<runtime::TraceCache> cache_;
};

class GuardBuilder {
 public:
  ir::SourceId source(const std::string& kind, std::optional<ir::SourceId> parent, nb::object key,
                      int64_t index, guard::BlockId block) {
    guard::SourceNode node;
    node.kind = static_cast<guard::SourceKind>(indexOf(kSourceNames, kind));
    node.parent = parent.value_or(ir::kNone);
    node.key = key.ptr() == missing().ptr() ? ir::kNone : constant(key);
    node.index = index;
    node.block = block;
    auto& nodes = recording_->document.sources.nodes;
    nodes.push_back(node);
    return static_cast<ir::SourceId>(nodes.size() - 1);
  }

  void guard(const std::string& kind, std::optional<ir::SourceId> source, nb::object key, int64_t number,
             std::optional<ir::SourceId> other, guard::BlockId block) {
    guard::Guard g;
    g.kind = static_cast<guard::GuardKind>(indexOf(kGuardNames, kind));
    g.block = block;
    g.source = source.value_or(ir::kNone);
    g.other = other.value_or(ir::kNone);
    g.key = key.ptr() == missing().ptr() ? ir::kNone : constant(key);
    g.number = number;
    recording_->document.guards.guards.push_back(g);
    recording_->document.guards.blockCount = std::max(recording_->document.guards.blockCount, block + 1);
  }

  void tensor(ir::SourceId source, nb::object tensor, bool sizes, guard::BlockId block) {
    auto& infos = recording_->document.trace.metas;
    ir::TensorDesc info = torchapi::describe(tensor.ptr());
    size_t number = 0;
    while (number < infos.size() && !(infos[number] == info)) {
      ++number;
    }
    if (number == infos.size()) {
      infos.push_back(std::move(info));
    }
    guard(sizes ? "tensor" : "tensorrank", source, missing(), static_cast<int64_t>(number), std::nullopt,
          block);
  }

  void globalState(guard::BlockId block) {
    recording_->globalStates.push_back(torchapi::GlobalState::current());
    guard("globalstate", std::nullopt, missing(), static_cast<int64_t>(recording_->globalStates.size()) - 1,
          std::nullopt, block);
  }

  std::unique_ptr<TestProgram> build() {
    auto recording = std::move(recording_);
    recording_ = std::make_unique<Recording>();
    ids_.clear();
    return std::make_unique<TestProgram>(std::move(recording));
  }

  // A trace that returns None, after the guards.
  void buildInto(TestCache& cache, const std::string& name, size_t argCount, nb::tuple kwnames) {
    ir::Trace& trace = recording_->document.trace;
    trace.file = "test.py";
    trace.line = 1;
    trace.function = name;
    trace.constCount = static_cast<uint32_t>(recording_->consts.size());
    trace.append(ir::Op::kRet, std::array{ir::Operand::none()}, {});
    recording_->argCount = argCount;
    recording_->kwNames = nb::len(kwnames) == 0 ? nullptr : pyapi::newRef(kwnames.ptr());
    auto recording = std::move(recording_);
    recording_ = std::make_unique<Recording>();
    ids_.clear();
    cache.insert(std::move(recording));
  }

  // The default of `key`, so that anything can be a key.
  static nb::object missing() {
    static constinit pyapi::Lazy<PyObject*> noneSlot;
    PyObject* none =
        noneSlot.get([] { return PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)); });
    return nb::borrow(none);
  }

 private:
  ir::ConstId constant(nb::object object) {
    auto& consts = recording_->consts;
    auto [it, fresh] = ids_.try_emplace(object.ptr(), static_cast<ir::ConstId>(consts.size()));
    if (fresh) {
      consts.push_back(pyapi::newRef(object.ptr()));
      const bool text = PyUnicode_Check(object.ptr());
      recording_->document.trace.constTexts.push_back(text ? nb::cast<std::string>(object) : "");
    }
    return it->second;
  }

  std::unique_ptr<Recording> recording_ = std::make_unique<Recording>();
  std::unordered_map<PyObject*, ir::ConstId> ids_;
};

void bindCache(nb::module_& m) {
  nb::class_<TestCache>(m, "TraceCache")
      .def(nb::init<size_t>(), nb::arg("limit") = runtime::TraceCache::kDefaultLimit)
      .def("lookup", &TestCache::lookup, nb::arg("args"), nb::arg("kwnames") = nb::tuple())
      .def("explain", &TestCache::explain, nb::arg("args"), nb::arg("kwnames") = nb::tuple())
      .def("stats", &TestCache::stats)
      .def("kill", &TestCache::kill)
      .def("order", &TestCache::order)
      .def("clear", [](TestCache& c) { c.cache().clear(); })
      .def("begin_recording", [](TestCache& c) { return c.cache().beginRecording(); })
      .def("end_recording", [](TestCache& c) { c.cache().endRecording(); })
      .def_static("clear_all", &runtime::TraceCache::clearAll)
      .def_static("forget_recordings", &runtime::TraceCache::forgetRecordings);
}

}  // namespace

void bindGuardTesting(nb::module_& module) {
  nb::module_ m = module.def_submodule("guard_testing", "Builds guard programs by hand; for tests.");
  nb::class_<TestProgram>(m, "GuardProgram")
      .def("check", &TestProgram::check, nb::arg("args"), nb::arg("block") = 0,
           nb::arg("values") = nb::list())
      .def("explain", &TestProgram::explain, nb::arg("args"), nb::arg("block") = 0)
      .def("bench", &TestProgram::bench, nb::arg("args"), nb::arg("checks") = 1000, nb::arg("rounds") = 11)
      .def("bench_cold", &TestProgram::benchCold, nb::arg("args"), nb::arg("bytes"), nb::arg("rounds") = 101)
      .def_prop_ro("hits", &TestProgram::hits)
      .def_prop_ro("misses", &TestProgram::misses)
      .def_prop_ro("guards", &TestProgram::guards)
      .def_prop_ro("words", &TestProgram::words)
      .def_prop_ro("pinned", &TestProgram::pinned);
  nb::class_<GuardBuilder>(m, "GuardBuilder")
      .def(nb::init<>())
      .def("source", &GuardBuilder::source, nb::arg("kind"), nb::arg("parent") = nb::none(),
           nb::arg("key").none() = GuardBuilder::missing(), nb::arg("index") = 0, nb::arg("block") = 0)
      .def("guard", &GuardBuilder::guard, nb::arg("kind"), nb::arg("source") = nb::none(),
           nb::arg("key").none() = GuardBuilder::missing(), nb::arg("number") = 0,
           nb::arg("other") = nb::none(), nb::arg("block") = 0)
      .def("tensor", &GuardBuilder::tensor, nb::arg("source"), nb::arg("tensor"), nb::arg("sizes") = true,
           nb::arg("block") = 0)
      .def("global_state", &GuardBuilder::globalState, nb::arg("block") = 0)
      .def("build", &GuardBuilder::build)
      .def("build_into", &GuardBuilder::buildInto, nb::arg("cache"), nb::arg("name"),
           nb::arg("arg_count") = 1, nb::arg("kwnames") = nb::tuple());
  bindCache(m);
}

}  // namespace kintsugi::bindings
