// A compiled callable: looks a call up in its trace cache, replays it, or records it.
//
// Ownership: the Python object `kintsugi._C.Compiled` owns it; it owns the function and the traces. Calls
// return a new reference, or null with an exception pending; fn() and entry() are borrowed. Threads: any
// number may call it; the GIL is needed. Invalidation: a trace is dropped by eviction, by reset(), and when
// an object that it needs has died.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/recorder.h"
#include "diag/diagnostic.h"
#include "driver/fx_segments.h"
#include "driver/native_segments.h"
#include "driver/recording.h"
#include "driver/stance.h"
#include "pyapi/ref.h"
#include "runtime/exit_context.h"
#include "runtime/trace_cache.h"
#include "support/allowance.h"
#include "support/backoff.h"
#include "support/contain.h"
#include "support/payoff.h"
#include "support/recording_budget.h"

namespace kintsugi::driver {

// Process-wide settings that the core needs; written by kintsugi.config under the GIL.
struct Settings {
  size_t recompileLimit = 8;
  size_t traceLengthLimit = 200000;
  bool reportCompiling = false;
  bool suppressErrors = true;
  bool errorOnGraphBreak = false;
  bool assumeStatic = true;
  size_t audit = 0;
  size_t sideTraceLimit = 64;   // of one callable; 0: exits are never recorded
  size_t failureLimit = 16;     // recordings of one callable that may fail before it is left to eager
  bool eagerWhenFaster = true;  // callables whose traces take longer than eager mode are left to it
  bool verbose = false;         // log lines of breaks and recompilations carry the stack
};
Settings& settings();

// Are breaks errors on this thread now? As the thread's own switch says; where that is not set, if torch's
// switch (torch._dynamo.error_on_graph_break) or config.error_on_graph_break is on.
bool errorOnGraphBreak();
// The thread's switch: -1 not set, 0 off, 1 on. Returns what it was.
int setErrorOnGraphBreak(int value);

// While one lives, compiled callables run in eager mode on this thread.
class DisabledScope {
 public:
  DisabledScope();
  ~DisabledScope();
  DisabledScope(const DisabledScope&) = delete;
};

struct FunctionOptions {
  bool fullgraph = false;
  bool exporting = false;  // recorded for kintsugi.export: as for a backend, though there is none
  size_t audit = 0;        // one call in so many is audited; 0: as settings() say
  int dynamic = -1;        // -1: what varies; 0: nothing; 1: all sizes and numbers that are given
  bool hasRecompileLimit = false;
  size_t recompileLimit = 0;
  size_t traceLengthLimit = 0;  // 0: as settings() say
  pyapi::Ref<> backend;         // null: ours
  pyapi::Ref<> guardFilter;     // says which guards are kept (guard_filter.h); null: all
  std::string name;             // for people: in logs and names of graphs
  diag::SourceLoc place;        // for people: the program's own code, where the entry is a library's
  NativeOptions native;         // without a backend: replay, or native code once that is there
};

// Why a call of a trace without tensor operations runs in eager mode.
inline constexpr const char* kNothingToCompile = "there is nothing to compile";

struct Recompile {
  std::string guard;
  std::string expected;
  std::string seen;
  std::string file;
  int line = 0;
};

class CompiledFunction final : private runtime::ExitHandler {
 public:
  CompiledFunction(PyObject* fn, FunctionOptions options);

  // The vectorcall.
  PyObject* call(PyObject* const* args, size_t nargsf, PyObject* kwnames);

  PyObject* fn() const { return fn_.get(); }
  bool hasBackend() const { return static_cast<bool>(options_.backend); }
  PyObject* entry() const { return function_.get(); }  // what a call of it runs
  runtime::TraceCache& cache() { return cache_; }
  const std::vector<diag::Diagnostic>& breaks();
  const std::vector<Recompile>& recompiles() const { return recompiles_; }
  // Calls run in eager mode, whatever they are given.
  bool disabled() const { return eager_; }
  // Calls run in eager mode for now, because they took less time there.
  bool prefersEager() const { return payoff_.prefersEager(); }
  void reset();
  // Called before a call is recorded, with its positional arguments and the dict of the others: it gives
  // traces of another process to adopt(), and returns whether to ask again. See packaged_calls.cc.
  void setPackage(pyapi::Ref<> package) { package_ = std::move(package); }
  // Installs a trace of a package (package_data.h), with its side traces. Empty, or why it can't be.
  std::string adopt(PyObject* data);
  // Logs that a trace of the package at `path` is not used.
  void noteUnused(const std::string& path, const std::string& reason);
  // Is this call to be audited? One in settings().audit, or in options.audit.
  bool auditDue();
  size_t auditInterval() const { return options_.audit != 0 ? options_.audit : settings().audit; }
  // A trace was wrong: all calls are eager until reset().
  void quarantine(const std::string& difference);
  // For the cycle collector. A running call holds this function, and so what its trace holds.
  int traverse(visitproc visit, void* arg);

 private:
  PyObject* callEager(const pyapi::Arguments& args);
  // Under a stance (stance_calls.cc)
  std::shared_ptr<CompiledFunction> withBackendOfStance();
  std::optional<PyObject*> insteadOfRecording(const pyapi::Arguments& args);
  PyObject* failOnRecompile(const diag::SourceLoc& place, const std::string& reasons);
  PyObject* failAtExit(const runtime::ExitContext& context, std::vector<runtime::FrameImage> images);
  // Under skip_guard_eval_unsafe, those that are checked; null: all.
  const runtime::DistinguishingGuards* checkedGuards() const {
    return stanceIsSet() && stance().skipsGuards ? &distinguishing_ : nullptr;
  }
  void noteDistinguishing(const runtime::CompiledTrace& trace, const runtime::GuardFailure& failure);
  PyObject* callCompiled(const pyapi::Arguments& args);
  PyObject* runTrace(runtime::CompiledTrace& trace, const pyapi::Arguments& args, runtime::SlotBuffer& slots);
  PyObject* failedRun(runtime::CompiledTrace& trace, const pyapi::Arguments& args, const std::string& text,
                      bool repeatable);
  // While the event stream is on (observed_call.cc)
  PyObject* callObserved(const pyapi::Arguments& args);
  PyObject* recordObserved(const pyapi::Arguments& args);
  PyObject* eagerBecause(const char* why, const pyapi::Arguments& args);
  // No tensor operation was recorded: CPython runs the calls, but some, by which other paths are found.
  bool noteIdle(runtime::CompiledTrace& trace);
  static bool isIdle(runtime::CompiledTrace& trace);
  diag::SourceLoc entryPlace() const;
  // While it is in doubt whether traces pay (compared_call.cc)
  PyObject* callCompared(const pyapi::Arguments& args);
  void addEvidence(uint64_t weight);
  bool countsCost() const;
  PyObject* callPlain(const pyapi::Arguments& args);
  void noteMissed();
  bool isNativePending() const;
  void logPrefersEager();
  PyObject* recordCall(const pyapi::Arguments& args);
  capture::RecorderOptions recorderOptions() const;
  PyObject* raiseSwallowedBreak(const std::optional<diag::Diagnostic>& refused, PyObject* result);
  // After a recorded call: lists the breaks and calls `failed` or `keep` (false: an exception is pending).
  PyObject* conclude(RecordedCall recorded, const std::function<void(capture::CaptureResult&)>& failed,
                     const std::function<bool(capture::CaptureResult&)>& keep);
  TracePasses tracePasses(const recording::Recording& recording) const;
  void logTrace(const runtime::CompiledTrace& trace, const std::string& what);
  std::string titleOf(const ir::Trace& trace) const;
  bool install(recording::Recording recording, const pyapi::Arguments& args);
  void keepTrace(std::shared_ptr<runtime::CompiledTrace> trace, const char* origin);
  // From a package (packaged_calls.cc)
  std::optional<PyObject*> callPackaged(const pyapi::Arguments& args);
  std::shared_ptr<runtime::CompiledTrace> adopted(PyObject* data, std::string& problem);
  // Side exits (side_recording.cc)
  bool shouldRecord(runtime::CompiledTrace& trace, uint32_t guard) override;
  void noteEndingWrite(runtime::CompiledTrace& trace, ir::StateId state) override;
  uint64_t completeRuns();
  PyObject* run(runtime::ExitContext context, std::vector<runtime::FrameImage> images) override;
  void linkSide(runtime::ExitContext& context, recording::Recording recording);
  void trimSides(const runtime::CompiledTrace& keep);
  void noteFailure(const diag::Diagnostic& diagnostic, PyObject* code);
  // Runs a part of a call. False: a check has failed; KTG0000 is noted, and calls are eager from now on.
  template <typename Body>
  bool succeeds(Body&& body) {
    const auto failure = contain(body);
    return !failure || abandon(failure->text);
  }
  bool abandon(const std::string& failure);
  void learn(const pyapi::Arguments& args);
  void noteVariations(const runtime::CompiledTrace& trace, const runtime::GuardFailure& failure);
  bool countValueChange(uint64_t source);
  bool closeLengths();
  PyObject* callTraced(const pyapi::Arguments& args);
  void examine();
  bool entryIsNew();  // does a call of fn run other code than it did when it was last examined?
  void findEntry();
  void noteEviction(const runtime::CompiledTrace& old);
  void addBreak(diag::Diagnostic diagnostic);
  void addBreaks(const std::vector<diag::Diagnostic>& breaks);
  void keepBreak(diag::Diagnostic& diagnostic);
  void logBreak(const diag::Diagnostic& diagnostic, size_t times);
  bool isFirstTry(const diag::Diagnostic& failure) const;
  // Calls that a side trace beyond the free ones has to be missing in. If larger, hot exits stay slow for
  // longer; if smaller, paths that do not come again are recorded.
  static constexpr uint64_t kSideTraceCost = 8, kFreeSideTraces = 16, kSidesPerGuard = 8;

  pyapi::Ref<> fn_;           // as the user gave it
  pyapi::Ref<> function_;     // the Python function that runs
  pyapi::Ref<> self_;         // its first argument, if fn is bound
  pyapi::Ref<> code_;         // of function_, as traces know it
  pyapi::Ref<> type_;         // of an object that is called: its __call__ is function_, as long as
  uint32_t typeVersion_ = 0;  // the type is unchanged
  FunctionOptions options_;
  runtime::TraceCache cache_;
  std::vector<diag::Diagnostic> breaks_;
  std::vector<Recompile> recompiles_;
  std::unordered_set<uint64_t> dynamicSources_;  // path hashes of numbers, texts and lengths that vary
  std::unordered_map<uint64_t, uint64_t> dynamicSizes_;  // of tensors: dimensions as bits
  // How often a text or a length was not what a trace takes it for, and in which recording that was last.
  struct ValueChanges {
    uint32_t times = 0;
    uint64_t recording = 0;
  };
  uint64_t recordings_ = 0;
  std::unordered_map<uint64_t, ValueChanges> valueChanges_;  // by path hash
  capture::OpenAttributes openAttributes_;                   // of classes
  std::unordered_set<PyObject*> opaqueCodes_;
  std::vector<pyapi::Ref<>> opaqueCodeRefs_;
  capture::EndingPlaces endingPlaces_;
  size_t failures_ = 0;
  Backoff backoff_;  // of calls without a trace that are to be recorded
  Allowance sides_{kSideTraceCost, kFreeSideTraces};
  RecordingBudget budget_;   // what recordings may take
  Payoff payoff_;            // which way calls go
  bool comparing_ = false;   // a call is being timed
  uint64_t missed_ = 0;      // calls that no trace fitted and that were not recorded
  uint64_t hitsAtExit_ = 0;  // calls that had found a trace when one of them last left it
  uint64_t calls_ = 0;       // that might have been audited
  bool eager_ = false;       // can't be recorded at all
  bool quarantined_ = false;
  SeenArguments seenFirst_;  // of the call that ran in eager mode before anything was compiled
  runtime::DistinguishingGuards distinguishing_;  // guards that have distinguished calls
  // The same callable under a stance with another backend.
  struct StanceVariant {
    bool native;
    pyapi::Ref<> backend;
    std::shared_ptr<CompiledFunction> function;
  };
  std::vector<StanceVariant> stanceVariants_;
  pyapi::Ref<> package_;                           // see setPackage()
  const pyapi::Arguments* packagedFor_ = nullptr;  // of the call that adopt() is for
  bool isStanceVariant_ = false;                   // it is one of these
  bool recorded_ = false;                          // a recording has begun since recordObserved() asked
};

}  // namespace kintsugi::driver
