#include "bindings/native.h"

#include <memory>
#include <string>

#include "bindings/text.h"
#include "codegen/kernel_cache.h"
#include "driver/native_segments.h"
#include "ops/operator.h"
#include "ops/saved.h"
#include "passes/operator_rules.h"
#include "passes/pass_statistics.h"
#include "pyapi/imports.h"
#include "runtime/work_clock.h"
#include "support/host_machine.h"
#include "support/target.h"
#include "torchapi/run_memory.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

bool wait(nb::object timeout) {
  const double seconds = timeout.is_none() ? -1.0 : nb::cast<double>(timeout);
  nb::gil_scoped_release released;
  return driver::waitForNative(seconds);
}

void stop() {
  nb::gil_scoped_release released;
  driver::stopNative();
}

nb::dict cacheInfo() {
  codegen::CacheCounters counters;
  {
    nb::gil_scoped_release released;
    counters = codegen::cacheCounters();
  }
  nb::dict out;
  out["kernels"] = counters.kernels;
  out["compiled"] = counters.compiled;
  out["reused"] = counters.reused;
  out["loaded"] = counters.loaded;
  out["rejected"] = counters.rejected;
  out["bytes"] = counters.bytes;
  out["seconds"] = counters.seconds;
  return out;
}

// Names of levels of vectors that this architecture has, the smallest first; the machine may have fewer.
nb::list targetLevels() {
  nb::list out;
  for (const VectorLevelInfo& info : vectorLevels()) {
    if (info.triple == levelInfo(hostMachine().level).triple) out.append(strOf(info.name));
  }
  return out;
}

nb::dict targetInfo() {
  const Target& made = target();
  const Machine& m = made.machine;
  const VectorLevelInfo& level = levelInfo(m.level);
  nb::dict out;
  out["level"] = strOf(level.name);
  out["machine"] = strOf(levelInfo(hostMachine().level).name);
  out["register_floats"] = level.registerFloats;
  out["registers"] = level.registers;
  out["fma"] = level.fma;
  out["lanes"] = made.lanes;
  out["l1"] = m.l1Bytes;
  out["l2"] = m.l2Bytes;
  out["l3"] = m.l3Bytes;
  out["page"] = m.pageBytes;
  out["cores"] = m.cores;
  return out;
}

void clearCache(bool disk) {
  nb::gil_scoped_release released;
  codegen::clearCache(disk);
}

nb::dict runMemory() {
  const torchapi::RunMemory memory = torchapi::runMemory();
  nb::dict out;
  out["pool_used"] = memory.used;
  out["pool_idle"] = memory.idle;
  return out;
}

// Calls `call` with Kintsugi's allocator active, so that benchmarks can measure what the allocator alone
// gains.
nb::object callInRunMemory(const nb::object& call, const nb::args& args, const nb::kwargs& kwargs) {
  torchapi::installRunMemory();
  const torchapi::RunMemoryScope scope;
  return call(*args, **kwargs);
}

// What it takes to read the clock, in nanoseconds.
double clockCost() {
  constexpr int kReads = 1000;
  const uint64_t start = diag::events::nowNs();
  uint64_t last = start;
  for (int k = 0; k < kReads; ++k) {
    last = diag::events::nowNs();
  }
  return static_cast<double>(last - start) / kReads;
}

// (nanoseconds of the call, those in native segments and operators of the replay, how many these were)
nb::tuple timeWork(const nb::object& call, const nb::args& args, const nb::kwargs& kwargs) {
  struct Switch {
    Switch() { runtime::WorkClock::ofThread() = {.on = true}; }
    ~Switch() { runtime::WorkClock::ofThread().on = false; }
  };
  const Switch on;
  const runtime::WorkClock& clock = runtime::WorkClock::ofThread();
  const uint64_t start = diag::events::nowNs();
  const nb::object result = call(*args, **kwargs);
  return nb::make_tuple(diag::events::nowNs() - start, clock.nanoseconds, clock.spans);
}

// (operator, argument, ulp, of x, least) of each row of ops/operators.def.
nb::list accuracies() {
  nb::list out;
  for (const ops::Accuracy& row : ops::accuracies()) {
    out.append(nb::make_tuple(strOf(row.name), strOf(row.argument), row.ulp, row.ofX, row.least));
  }
  return out;
}

// (operand, how, wanted operands) of each entry of KTG_SAVES; operand -1: the result.
nb::list savesOf(ops::Operator op) {
  constexpr const char* kHow[] = {"itself", "view", "widened", "folded", "unless bools", "unless a mean"};
  nb::list out;
  for (const ops::Saved& saved : ops::savedBy(op)) {
    out.append(nb::make_tuple(saved.what, kHow[static_cast<size_t>(saved.as)], saved.wanted));
  }
  return out;
}

// Each row of ops/operators.def: what tests hold against torch.
nb::list operators() {
  nb::list out;
  for (const ops::OperatorInfo& row : ops::operators().subspan(1)) {
    nb::dict each;
    each["name"] = strOf(row.name);
    nb::list traits;
    for (const std::string_view name : ops::traitNamesOf(row.name)) traits.append(strOf(name));
    each["traits"] = traits;
    nb::list quiet;
    for (const int8_t operand : row.quietIfZero) {
      if (operand >= 0) quiet.append(operand);
    }
    each["quiet_if_zero"] = quiet;
    each["new_form"] = strOf(ops::nameOf(row.newForm));
    constexpr const char* kWhen[] = {"never", "always", "same form", "same sizes", "if quiet"};
    each["gives_back"] =
        nb::make_tuple(kWhen[static_cast<size_t>(row.givesBack.when)], row.givesBack.operand);
    const ops::SliceOperands& s = row.slice;
    each["slice"] = nb::make_tuple(s.dim, s.start, s.end, s.step);
    const ops::ProductOperands& p = row.product;
    each["product"] = nb::make_tuple(p.left, p.right, p.added, p.byRows, p.operands);
    const ops::AttentionOperands& a = row.attention;
    each["attention"] = nb::make_tuple(a.mask, a.dropout, a.causal, a.scale, a.grouped);
    each["foreach"] = strOf(row.foreach.name);
    each["torch"] = nb::make_tuple(strOf(row.torchFrom), strOf(row.torchBefore));
    constexpr const char* kLayouts[] = {"other", "same", "reads", "product"};
    each["layout"] = kLayouts[static_cast<size_t>(row.layout)];
    each["updates_rows"] = row.rowUpdate != ops::RowUpdateKind::kNone;
    each["view"] = passes::isView(row.id);
    const passes::GradientRule* gradient = passes::gradientOf(row.id);
    each["gradient"] = gradient == nullptr ? "" : gradient->make == nullptr ? "taped" : "rule";
    each["saves"] = savesOf(row.id);
    out.append(each);
  }
  return out;
}

// (kind, name, runs, nanoseconds, before, after) of each pass that has run.
nb::list passTotals(bool clear) {
  nb::list out;
  for (const passes::PassTotals& row : passes::passStatistics()) {
    out.append(
        nb::make_tuple(strOf(row.kind), strOf(row.name), row.runs, row.nanoseconds, row.before, row.after));
  }
  if (clear) passes::clearPassStatistics();
  return out;
}

// Prints a warning of the disk cache. A pending call of the interpreter, because the cache reports it under
// its locks and without the GIL.
int sayWarning(void* text) {
  const std::unique_ptr<std::string> owned(static_cast<std::string*>(text));
  PyObject* module = pyapi::importModule("kintsugi._logs");
  PyObject* line = PyUnicode_DecodeFSDefault(owned->c_str());  // folders have any name
  PyObject* done =
      module != nullptr && line != nullptr ? PyObject_CallMethod(module, "warn", "O", line) : nullptr;
  Py_XDECREF(module);
  Py_XDECREF(line);
  Py_XDECREF(done);
  PyErr_Clear();
  return 0;
}

void noteWarning(const std::string& text) {
  auto* kept = new std::string(text);
  if (Py_AddPendingCall(sayWarning, kept) != 0) delete kept;
}

}  // namespace

void bindNative(nb::module_& m) {
  m.def("wait", &wait, nb::arg("timeout").none() = nb::none());
  m.def("native_backlog", &driver::nativeBacklog);
  m.def("stop_native", &stop);
  m.def("cache_info", &cacheInfo);
  m.def("target_levels", &targetLevels);
  m.def("target_info", &targetInfo);
  m.def("clear_cache", &clearCache, nb::arg("disk"));
  m.def("native_accuracies", &accuracies);
  m.def("operators", &operators);
  m.def("run_memory", &runMemory);
  m.def("pass_totals", &passTotals, nb::arg("clear") = false);
  m.def("trim_run_memory", &torchapi::trimRunMemory);
  m.def("call_in_run_memory", &callInRunMemory, nb::arg("call"), nb::arg("args"), nb::arg("kwargs"));
  m.def("clock_cost", &clockCost);
  m.def("time_work", &timeWork, nb::arg("call"), nb::arg("args"), nb::arg("kwargs"));
  codegen::setDiskWarning(noteWarning);
  driver::installNativeForkHandlers();
}

}  // namespace kintsugi::bindings
