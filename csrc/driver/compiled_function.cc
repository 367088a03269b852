#include "driver/compiled_function.h"

#include <algorithm>
#include <sstream>
#include <tuple>

#include "capture/breaks.h"
#include "capture/calls/model.h"
#include "capture/calls/substitutes.h"
#include "capture/class_attributes.h"
#include "diag/events.h"
#include "diag/log.h"
#include "driver/const_texts.h"
#include "driver/disabled.h"
#include "driver/guard_filter.h"
#include "driver/interpret_all.h"
#include "driver/lifecycle_events.h"
#include "driver/recording.h"
#include "guard/document.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/imports.h"
#include "pyapi/object_layout.h"
#include "pyapi/stack_limit.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "runtime/guard_explain.h"
#include "runtime/run_events.h"
#include "support/contain.h"
#include "support/fault.h"
#include "torchapi/run_memory.h"

namespace kintsugi::driver {

namespace log = diag::log;

Settings& settings() {
  static Settings instance;
  return instance;
}

namespace {

thread_local int strictSwitch = -1;
thread_local int disabledDepth = 0;

// Room for the arguments with a bound self in front.
class ArgumentBuffer {
 public:
  PyObject* const* with(PyObject* self, PyObject* const* args, size_t total) {
    PyObject** data = inline_;
    if (total + 1 > std::size(inline_)) {
      heap_.resize(total + 1);
      data = heap_.data();
    }
    data[0] = self;
    for (size_t i = 0; i < total; ++i) data[i + 1] = args[i];
    return data;
  }

 private:
  PyObject* inline_[16];
  std::vector<PyObject*> heap_;
};

// After so many different values of a text or of a container's length, the next trace takes it as a value.
// Before, each value is pinned in a trace of its own, which suits the few names and lengths that most
// programs have.
constexpr uint32_t kManyValues = 5;
constexpr size_t kMostRecompiles = 1000;  // reports that are kept

// Lines for a log: frames of the program, outermost first.
std::string stackText(const std::vector<diag::SourceLoc>& frames) {
  std::string out;
  for (const diag::SourceLoc& place : frames)
    out += "\n  File \"" + place.file + "\", line " + std::to_string(place.line) + ", in " + place.function;
  return out;
}

// The stack of the compiled callable's caller.
std::string callers() { return stackText(capture::runningFrames()); }

std::string describeTrace(const ir::Trace& trace) {
  std::string file = trace.file.substr(trace.file.rfind('/') + 1);
  return file + ":" + std::to_string(trace.line) + " " + trace.function;
}

// The lines of the trace's text that change something outside it.
std::string listEffects(const runtime::CompiledTrace& trace) {
  std::istringstream text(guard::print(trace.recording().document));
  std::string out;
  for (std::string line; std::getline(text, line);) {
    const bool effect = line.find("effect.") != std::string::npos ||
                        line.find("= call ") != std::string::npos ||
                        line.find("call.known ") != std::string::npos;
    if (effect) out += "\n" + line;
  }
  return out.empty() ? " none" : out;
}

// Has the trace opaque steps, which run in every call? Not counted if one of them waits for other processes
// (a collective): the time of such a call says nothing about the trace.
bool hasSteps(const recording::Recording& recording) {
  const ir::Trace& trace = recording.document.trace;
  bool steps = false;
  for (const ir::Instruction& ins : trace.code) {
    if (ins.op != ir::Op::kCall && ins.op != ir::Op::kCallKnown && ins.op != ir::Op::kCallPure) continue;
    steps = true;
    const ir::Operand& callee = trace.operandsOf(ins)[0];
    if (callee.kind == ir::OperandKind::kConst &&
        capture::waitsForProcesses(recording.consts[callee.id].get()))
      return false;
  }
  return steps;
}

bool alreadyThere(const std::vector<diag::Diagnostic>& list, const diag::Diagnostic& d) {
  for (const diag::Diagnostic& other : list) {
    if (other.code == d.code && other.args == d.args && other.location.line == d.location.line &&
        other.location.file == d.location.file) {
      return true;
    }
  }
  return false;
}

}  // namespace

namespace {

// What torch._dynamo.error_on_graph_break() has set, if torch's compiler is there.
bool torchSwitch() {
  // Asked in many calls, so the names are made once.
  static PyObject* const module = PyUnicode_InternFromString("torch._dynamo.utils");
  static PyObject* const name = PyUnicode_InternFromString("_error_on_graph_break");
  PyObject* names = pyapi::loadedNamespace(module);
  return names != nullptr && PyDict_GetItem(names, name) == Py_True;
}

}  // namespace

bool errorOnGraphBreak() {
  return strictSwitch < 0 ? settings().errorOnGraphBreak || torchSwitch() : strictSwitch == 1;
}
int setErrorOnGraphBreak(int value) { return std::exchange(strictSwitch, value); }
bool isDisabled() { return disabledDepth > 0; }
DisabledScope::DisabledScope() { ++disabledDepth; }
DisabledScope::~DisabledScope() { --disabledDepth; }

CompiledFunction::CompiledFunction(PyObject* fn, FunctionOptions options)
    : fn_(pyapi::newRef(fn)), options_(std::move(options)) {
  torchapi::installRunMemory();
  findEntry();
  examine();
}

// The Python function that a call of fn runs.
void CompiledFunction::findEntry() {
  PyObject* callable = fn_.get();
  self_ = nullptr;
  type_ = nullptr;
  if (PyMethod_Check(callable)) {
    self_ = pyapi::newRef(PyMethod_GET_SELF(callable));
    callable = PyMethod_GET_FUNCTION(callable);
  } else if (!PyFunction_Check(callable)) {
    PyObject* method = capture::specialMethod(Py_TYPE(callable), "__call__");
    if (method != nullptr && PyFunction_Check(method)) {
      self_ = pyapi::newRef(callable);
      type_ = pyapi::newRef(reinterpret_cast<PyObject*>(Py_TYPE(callable)));
      typeVersion_ = pyapi::typeVersion(Py_TYPE(callable));
      callable = method;
    }
  }
  if (PyObject* instead = capture::substituteOf(callable)) callable = instead;
  function_ = pyapi::newRef(callable);
  code_ = pyapi::newRef(PyFunction_Check(callable) ? PyFunction_GET_CODE(callable) : nullptr);
}

// Does a call run another function than when it was last examined? The program may have assigned `__code__`,
// `__class__` or a class's `__call__`.
bool CompiledFunction::entryIsNew() {
  if (code_.get() != nullptr && PyFunction_GET_CODE(function_.get()) != code_.get()) return true;
  if (type_.get() == nullptr) return false;
  PyTypeObject* type = Py_TYPE(self_.get());
  const bool same = reinterpret_cast<PyObject*>(type) == type_.get();
  const uint32_t version = pyapi::typeVersion(type);
  if (same && version != 0 && version == typeVersion_) return false;
  PyObject* method = capture::specialMethod(type, "__call__");
  if (method != function_.get()) return true;
  type_ = pyapi::newRef(reinterpret_cast<PyObject*>(type));
  typeVersion_ = version;
  return false;
}

// Can calls be recorded at all?
void CompiledFunction::examine() {
  PyObject* callable = function_.get();
  eager_ = false;
  if (!PyFunction_Check(callable)) {
    eager_ = true;
    addBreak(diag::Diagnostic(diag::Code::KTG0101, {pyapi::typeNameOf(callable)}));
  } else if (pyapi::flagsOf(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callable))) &
             (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) {
    eager_ = true;
    addBreak(diag::Diagnostic(diag::Code::KTG0110,
                              {pyapi::utf8(pyapi::qualifiedNameOf(pyapi::asFunction(callable)))},
                              entryPlace()));
  }
}

PyObject* CompiledFunction::callEager(const pyapi::Arguments& args) { return args.call(function_.get()); }

PyObject* CompiledFunction::call(PyObject* const* data, size_t nargsf, PyObject* kwnames) {
  PyThreadState* tstate = PyThreadState_Get();
  if (!pyapi::checkStackLimit()) return nullptr;
  if (entryIsNew()) [[unlikely]] {
    cache_.clear();
    package_.reset();
    findEntry();
    examine();
  }
  pyapi::Arguments args(data, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
  ArgumentBuffer buffer;
  if (self_) args = {buffer.with(self_.get(), data, args.total()), args.positional() + 1, kwnames};
  if (stanceIsSet() && stance().kind == StanceKind::kForceEager) [[unlikely]]
    return callEager(args);
  // While a caller is being recorded, this function runs as plain frames, which are recorded too.
  if (eager_ || quarantined_ || disabledDepth > 0 || isRecording() || pyapi::isWatching(tstate)) {
    const bool strict = options_.fullgraph || errorOnGraphBreak();
    if (eager_ && strict && disabledDepth == 0 && !isRecording() && !breaks_.empty()) {
      capture::raiseGraphBreak(breaks_.front(),
                               options_.fullgraph ? "fullgraph=True" : "error_on_graph_break");
      return nullptr;
    }
    return callEager(args);
  }
  if (pyapi::isTracing(tstate)) [[unlikely]]
    return callTraced(args);
  if (stanceIsSet() && stance().hasBackend && !isStanceVariant_) [[unlikely]] {
    const auto instead = withBackendOfStance();
    return instead->call(data, nargsf, kwnames);
  }
  return payoff_.prefersTraces() ? callCompiled(args) : callCompared(args);
}

PyObject* CompiledFunction::callCompiled(const pyapi::Arguments& args) {
  if (runtime::isObserved()) [[unlikely]]
    return callObserved(args);
  {
    runtime::SlotBuffer slots;
    std::shared_ptr<runtime::CompiledTrace> trace;
    const bool looked = succeeds([&] {
      faultPoint("look-up");
      trace = cache_.lookup(args, slots, checkedGuards());
    });
    if (!looked) [[unlikely]]
      return callEager(args);
    if (trace) {
      if (isIdle(*trace)) [[unlikely]]
        return eagerBecause(kNothingToCompile, args);
      if (pyapi::recursionLeft(PyThreadState_Get()) >= trace->recording().recursion) [[likely]]
        return runTrace(*trace, args, slots);
      return eagerBecause("the recursion limit is near", args);
    }
  }
  return recordCall(args);
}

PyObject* CompiledFunction::runTrace(runtime::CompiledTrace& trace, const pyapi::Arguments& args,
                                     runtime::SlotBuffer& slots) {
  PyObject* result = nullptr;
  bool repeatable = false;
  const auto failure = contain([&] {
    result = trace.replay().run(trace, args, slots.data(), this, slots.bypassRunners, &repeatable);
  });
  return failure ? failedRun(trace, args, failure->text, repeatable) : result;
}

// A check of ours has failed in a run. If the run has had no visible effect, the call is made in eager mode.
// Otherwise a second run would repeat effects that the program has once, so the call raises.
PyObject* CompiledFunction::failedRun(runtime::CompiledTrace& trace, const pyapi::Arguments& args,
                                      const std::string& text, bool repeatable) {
  trace.dead = true;
  addBreak(diag::Diagnostic(diag::Code::KTG0000, {text}));
  if (repeatable) {
    PyErr_Clear();
    return callEager(args);
  }
  if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "kintsugi: KTG0000 %s", text.c_str());
  return nullptr;
}

bool CompiledFunction::abandon(const std::string& failure) {
  PyErr_Clear();
  addBreak(diag::Diagnostic(diag::Code::KTG0000, {failure}));
  cache_.clear();
  eager_ = true;
  return false;
}

// The breaks of calls, and the failed checks of the thread that compiles.
const std::vector<diag::Diagnostic>& CompiledFunction::breaks() {
  std::vector<std::string> texts;
  for (const auto& trace : cache_.traces()) collectFailures(*trace, texts);
  for (std::string& text : texts) {
    diag::Diagnostic found(diag::Code::KTG0000, {std::move(text)}, entryPlace());
    if (!alreadyThere(breaks_, found)) keepBreak(found);
  }
  return breaks_;
}

PyObject* CompiledFunction::recordCall(const pyapi::Arguments& args) {
  bool possible = !isRecording() && !interpretAll() && torchapi::GlobalState::current().recordable();
  if (!possible) return eagerBecause("recording is not possible here", args);
  if (stanceIsSet()) [[unlikely]] {
    if (const auto instead = insteadOfRecording(args)) return *instead;
  }
  if (package_) [[unlikely]] {
    if (const auto result = callPackaged(args)) return *result;
  }
  const bool strict = options_.fullgraph || errorOnGraphBreak();
  if (!strict && backoff_.passes()) {
    noteMissed();
    return eagerBecause("the last recordings came to nothing", args);
  }
  if (!strict && countsCost() && !budget_.allows(diag::events::nowNs())) return callPlain(args);
  runtime::RecordingScope scope(cache_);
  if (!scope) return eagerBecause("another call is being recorded", args);
  recorded_ = true;
  const uint64_t start = diag::events::nowNs();
  const uint64_t evictions = cache_.stats().evictions;
  const size_t opaqueCodes = opaqueCodes_.size();
  ++recordings_;
  addEvidence(Payoff::kRecorded);
  const bool learned = succeeds([&] {
    faultPoint("learn");
    learn(args);
  });
  if (!learned) return callEager(args);
  if (options_.backend && recordings_ == 1) prepareBackend(options_.backend.get());
  RecordedCall recorded = record(recorderOptions(), function_.get(), args);
  if (log::enabled(log::Channel::kPerf)) {
    log::emit(log::Channel::kPerf, entryPlace().format() + " was recorded in " +
                                       std::to_string((diag::events::nowNs() - start) / 1000) + " us");
  }
  bool useless = false;
  PyObject* result = conclude(
      std::move(recorded),
      [&](capture::CaptureResult& capture) {
        if (capture.failure->code == diag::Code::KTG0303 && closeLengths()) return;
        noteFailure(*capture.failure, capture.failedIn);
        useless = opaqueCodes_.size() == opaqueCodes && !isFirstTry(*capture.failure);
      },
      [&](capture::CaptureResult& capture) { return install(std::move(capture.recording), args); });
  const uint64_t end = diag::events::nowNs();
  budget_.recorded(end, end - start);
  // Recording costs several calls' time. One that failed, or whose trace took the place of another,
  // makes the next one wait.
  useless || cache_.stats().evictions > evictions ? backoff_.failed() : backoff_.succeeded();
  return result;
}

PyObject* CompiledFunction::conclude(RecordedCall recorded,
                                     const std::function<void(capture::CaptureResult&)>& failed,
                                     const std::function<bool(capture::CaptureResult&)>& keep) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  capture::CaptureResult& capture = *recorded.capture;
  // The call has been made; a failure from here on must not change its result.
  succeeds([&] {
    faultPoint("conclude");
    openAttributes_.addAll(capture.written);
    if (capture.refused) {
      addBreak(*capture.refused);
    } else if (capture.failure) {
      addBreaks(capture.recording.breaks);
      // An exception of the program's own is no failure of the recording.
      if (recorded.result != nullptr || capture.failure->code != diag::Code::KTG0111) {
        failed(capture);
      } else if (type != nullptr && log::enabled(log::Channel::kTrace)) {
        const char* name = pyapi::typeName(reinterpret_cast<PyTypeObject*>(type));
        log::emit(log::Channel::kTrace,
                  "[TRACE --- " + diag::Diagnostic(diag::Code::KTG0111, {name}, entryPlace()).format() + "]");
      }
    } else if (recorded.result != nullptr && !keep(capture)) {
      pyapi::steal(std::exchange(recorded.result, nullptr));
      PyErr_Fetch(&type, &value, &traceback);
    }
  });
  const std::optional<diag::Diagnostic> refused = std::move(capture.refused);
  recorded.capture.reset();
  PyErr_Restore(type, value, traceback);
  return raiseSwallowedBreak(refused, recorded.result);
}

capture::RecorderOptions CompiledFunction::recorderOptions() const {
  capture::RecorderOptions options;
  options.maxInstructions =
      options_.traceLengthLimit != 0 ? options_.traceLengthLimit : settings().traceLengthLimit;
  options.reportCompiling = settings().reportCompiling || options_.backend || options_.exporting;
  options.fullgraph = options_.fullgraph;
  options.errorOnBreak = errorOnGraphBreak;
  options.dynamic = options_.dynamic;
  options.assumeStatic = settings().assumeStatic;
  options.dynamicSources = &dynamicSources_;
  options.dynamicSizes = &dynamicSizes_;
  options.openAttributes = &openAttributes_;
  options.opaqueCodes = &opaqueCodes_;
  options.endingPlaces = &endingPlaces_;
  options.pinLikely = !options_.backend && !options_.exporting;  // whose graphs end at guards
  return options;
}

// Under fullgraph, a break raises inside the program. If the program has caught that error, it is raised
// again here, instead of returning a result.
PyObject* CompiledFunction::raiseSwallowedBreak(const std::optional<diag::Diagnostic>& refused,
                                                PyObject* result) {
  if (!refused || result == nullptr) return result;
  pyapi::steal(result);
  if (refused->code == diag::Code::KTG0111) {  // see Breaks::raiseAssertion()
    PyErr_SetString(PyExc_AssertionError, refused->args[0].c_str());
    return nullptr;
  }
  capture::raiseGraphBreak(*refused, options_.fullgraph ? "fullgraph=True" : "error_on_graph_break");
  return nullptr;
}

// Under sys.settrace or sys.setprofile the tracer has to see every frame, so the call runs in eager mode.
PyObject* CompiledFunction::callTraced(const pyapi::Arguments& args) {
  if (log::enabled(log::Channel::kGraphBreaks)) {
    log::emit(
        log::Channel::kGraphBreaks,
        diag::Diagnostic(diag::Code::KTG0105, {"sys.settrace or sys.setprofile"}, entryPlace()).format());
  }
  return eagerBecause("sys.settrace or sys.setprofile is on", args);
}

// Finds out why no trace fits. Numbers and sizes that differ become inputs of the next trace; the rest is for
// the report of recompilations.
void CompiledFunction::learn(const pyapi::Arguments& args) {
  auto traces = cache_.traces();
  if (traces.empty()) return;
  for (auto& trace : traces) {
    const recording::Recording& recording = trace->recording();
    runtime::GuardFailure failure = runtime::explainMiss(*trace, args);
    Recompile report;
    report.file = trace->trace().file;
    report.line = trace->trace().line;
    report.expected = failure.expected;
    report.seen = failure.seen;
    report.guard = failure.guard == ir::kNone ? "the call" : runtime::describeGuard(recording, failure.guard);
    noteVariations(*trace, failure);
    noteDistinguishing(*trace, failure);
    if (log::enabled(log::Channel::kRecompiles)) {
      diag::Diagnostic d(diag::Code::KTG0201, {report.guard, report.expected, report.seen});
      log::emit(log::Channel::kRecompiles, "[RECOMPILE " + titleOf(trace->trace()) + "] " + d.format() +
                                               (settings().verbose ? callers() : ""));
    }
    emitRecompile(*trace, report);
    if (recompiles_.size() < kMostRecompiles) recompiles_.push_back(std::move(report));
  }
}

// A text or a length differs from what a trace has pinned. True: it has done so often enough to become a
// value. Counted once per recording, even if several traces say so.
bool CompiledFunction::countValueChange(uint64_t source) {
  ValueChanges& changes = valueChanges_[source];
  if (std::exchange(changes.recording, recordings_) == recordings_) return false;
  return ++changes.times == kManyValues;
}

// Marks sizes and numbers that differ, so that the next recording takes them as values.
void CompiledFunction::noteVariations(const runtime::CompiledTrace& trace,
                                      const runtime::GuardFailure& failure) {
  const recording::Recording& recording = trace.recording();
  for (const auto& [type, name] : failure.classAttributes) {
    if (capture::mayOpen(type, name.get())) openAttributes_.add(type, name.get());
  }
  for (const runtime::Variation& variation : failure.variations) {
    const guard::Guard& g = recording.document.guards.guards[variation.guard];
    const uint64_t hash = recording.sourceHashes[g.source];
    if (variation.patient && !countValueChange(hash)) continue;
    const bool fresh = variation.dims == 0
                           ? dynamicSources_.insert(hash).second
                           : (variation.dims &
                              ~std::exchange(dynamicSizes_[hash], dynamicSizes_[hash] | variation.dims)) != 0;
    if (!fresh || (!log::enabled(log::Channel::kDynamic) && !diag::events::on())) continue;
    const std::string source = recording.document.sources.path(g.source, recording.document.trace.constTexts);
    emitDynamic(trace, source, variation.dims);
    log::emit(log::Channel::kDynamic, "[DYNAMIC " + titleOf(recording.document.trace) + "] " +
                                          varyingText(variation.dims) + " of " + source +
                                          " varies: a value of the next trace");
  }
}

// A recording with texts and lengths as values has failed: they are pinned again from now on. False: there
// were none.
bool CompiledFunction::closeLengths() {
  size_t closed = 0;
  for (auto& [hash, changes] : valueChanges_) {
    if (changes.times >= kManyValues) closed += dynamicSources_.erase(hash);
    changes.times = kManyValues;  // which it has passed when it is seen again
  }
  return closed != 0;
}

void CompiledFunction::noteEviction(const runtime::CompiledTrace& old) {
  emitEviction(old, cache_.limit());
  if (!log::enabled(log::Channel::kRecompiles)) return;
  const ir::Trace& trace = old.trace();
  const diag::SourceLoc place{trace.file, trace.line, trace.function};
  log::emit(log::Channel::kRecompiles,
            diag::Diagnostic(diag::Code::KTG0202, {std::to_string(cache_.limit())}, place).format());
}

void CompiledFunction::addBreak(diag::Diagnostic diagnostic) {
  keepBreak(diagnostic);
  logBreak(diagnostic, 1);
}

// Adds the breaks of one recording. Equal ones (of a loop) become one line of the log with a count.
void CompiledFunction::addBreaks(const std::vector<diag::Diagnostic>& breaks) {
  const bool logged = log::enabled(log::Channel::kGraphBreaks);
  std::vector<std::pair<diag::Diagnostic, size_t>> lines;
  for (diag::Diagnostic d : breaks) {
    keepBreak(d);
    if (!logged) continue;
    const auto same = std::ranges::find(lines, d, &std::pair<diag::Diagnostic, size_t>::first);
    if (same != lines.end()) {
      ++same->second;
    } else {
      lines.emplace_back(std::move(d), 1);
    }
  }
  for (const auto& [d, times] : lines) logBreak(d, times);
}

void CompiledFunction::keepBreak(diag::Diagnostic& diagnostic) {
  // A break without a place concerns the whole callable.
  if (!diagnostic.location.known() && PyFunction_Check(function_.get())) diagnostic.location = entryPlace();
  if (!alreadyThere(breaks_, diagnostic)) breaks_.push_back(diagnostic);
  emitBreak(diagnostic);
}

void CompiledFunction::logBreak(const diag::Diagnostic& diagnostic, size_t times) {
  if (!log::enabled(log::Channel::kGraphBreaks)) return;
  log::emit(log::Channel::kGraphBreaks,
            diagnostic.format() + (times > 1 ? ", " + std::to_string(times) + " times" : "") +
                (settings().verbose ? callers() + stackText(diagnostic.stack) : ""));
}

// A first call often initializes something: it installs hooks, imports modules. If its changes could not be
// tracked, that says nothing about the next call.
bool CompiledFunction::isFirstTry(const diag::Diagnostic& failure) const {
  return failure.code == diag::Code::KTG0303 && failures_ == 1 && cache_.traces().empty();
}

// A recording that failed inside an inlined function: next time that function is an opaque step. One that
// failed in the entry itself leaves the callable to eager after a few tries (arguments may differ).
void CompiledFunction::noteFailure(const diag::Diagnostic& diagnostic, PyObject* code) {
  addBreak(diagnostic);
  if (log::enabled(log::Channel::kTrace))
    log::emit(log::Channel::kTrace, "[TRACE --- " + diagnostic.format() + "]");
  ++failures_;
  if (isFirstTry(diagnostic)) return;
  if (code != nullptr && opaqueCodes_.insert(code).second) {
    opaqueCodeRefs_.push_back(pyapi::newRef(code));
  } else if (code == nullptr || failures_ > settings().failureLimit) {
    eager_ = cache_.traces().empty();
  }
}

void CompiledFunction::logTrace(const runtime::CompiledTrace& trace, const std::string& what) {
  const ir::Trace& made = trace.trace();
  if (log::enabled(log::Channel::kTrace)) {
    log::emit(log::Channel::kTrace,
              "[TRACE " + std::to_string(trace.number()) + " (" + what + ") " + titleOf(made) + ": " +
                  std::to_string(made.code.size() - trace.recording().start) + " instructions, " +
                  std::to_string(trace.recording().document.guards.guards.size()) + " guards]");
  }
  if (log::enabled(log::Channel::kGuards)) {
    std::string text = guard::print(trace.recording().document);
    log::emit(log::Channel::kGuards,
              "[GUARDS " + titleOf(made) + "]\n" + text.substr(0, text.find("\ntrace ")));
  }
  if (log::enabled(log::Channel::kEffects)) {
    log::emit(log::Channel::kEffects, "[EFFECTS " + titleOf(made) + "]" + listEffects(trace));
  }
  if (log::enabled(log::Channel::kGraphCode)) {
    log::emit(log::Channel::kGraphCode, guard::print(trace.recording().document));
  }
}

std::string CompiledFunction::titleOf(const ir::Trace& trace) const {
  return describeTrace(trace) + (options_.name.empty() ? "" : " (" + options_.name + ")");
}

// False: the backend's exception, or the guard filter's, is pending.
bool CompiledFunction::install(recording::Recording recording, const pyapi::Arguments& args) {
  bool kept = true;  // false: an exception is pending
  addBreaks(recording.breaks);
  const auto failure = contain([&] {
    faultPoint("install");
    describeConstants(recording, function_.get());
    if (options_.place.known()) {
      ir::Trace& shown = recording.document.trace;
      std::tie(shown.file, shown.line, shown.function) =
          std::tie(options_.place.file, options_.place.line, options_.place.function);
    }
    runTracePasses(recording.document, 0, tracePasses(recording));
    kept = !options_.guardFilter || filterGuards(recording, options_.guardFilter.get(), args);
    if (!kept) return;
    auto trace = std::make_shared<runtime::CompiledTrace>(std::move(recording));
    if (options_.native.enabled) attachNative(*trace, options_.native);
    kept = !options_.backend || attachBackend(*trace, options_.backend.get(), &args, options_.name);
    if (kept) keepTrace(std::move(trace), "");
  });
  if (failure) noteFailure(diag::Diagnostic(diag::Code::KTG0000, {failure->text}), nullptr);
  return kept;
}

TracePasses CompiledFunction::tracePasses(const recording::Recording& recording) const {
  return {options_.backend || options_.native.enabled, options_.native.enabled, recording.gradients};
}

void CompiledFunction::keepTrace(std::shared_ptr<runtime::CompiledTrace> trace, const char* origin) {
  cache_.setLimit(options_.hasRecompileLimit ? options_.recompileLimit : settings().recompileLimit);
  if (!noteIdle(*trace) && hasSteps(trace->recording())) addEvidence(Payoff::kSteps);
  logTrace(*trace, std::to_string(cache_.stats().traces + 1) + origin);
  for (auto& old : cache_.insert(std::move(trace))) noteEviction(*old);
}

bool CompiledFunction::auditDue() {
  const size_t every = auditInterval();
  if (every == 0 || eager_ || quarantined_ || disabledDepth > 0 || isRecording()) return false;
  return ++calls_ % every == 0;
}

void CompiledFunction::quarantine(const std::string& difference) {
  cache_.clear();
  quarantined_ = true;
  addBreak(diag::Diagnostic(diag::Code::KTG0401, {difference}));
}

void CompiledFunction::reset() {
  quarantined_ = false;
  cache_.clear();
  breaks_.clear();
  recompiles_.clear();
  dynamicSources_.clear();
  dynamicSizes_.clear();
  valueChanges_.clear();
  openAttributes_.clear();
  opaqueCodes_.clear();
  opaqueCodeRefs_.clear();
  endingPlaces_.clear();
  failures_ = 0;
  backoff_.succeeded();
  sides_ = {kSideTraceCost, kFreeSideTraces};
  budget_ = {};
  payoff_ = {};
  seenFirst_.forget();
  distinguishing_ = {};
  package_.reset();
  for (const StanceVariant& one : std::exchange(stanceVariants_, {})) one.function->reset();
  examine();
}

int CompiledFunction::traverse(visitproc visit, void* arg) {
  Py_VISIT(fn_.get());
  Py_VISIT(function_.get());
  Py_VISIT(self_.get());
  Py_VISIT(type_.get());
  Py_VISIT(options_.backend.get());
  Py_VISIT(options_.guardFilter.get());
  Py_VISIT(package_.get());
  for (const StanceVariant& one : stanceVariants_) {
    Py_VISIT(one.backend.get());
    if (const int stop = one.function->traverse(visit, arg)) return stop;
  }
  return cache_.traverse(visit, arg);
}

}  // namespace kintsugi::driver
