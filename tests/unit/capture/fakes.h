// Fakes of what a part of the recorder asks of others (capture/roles.h): each notes what it was asked for.
//
// Example: a Snapshots over fakes is made by `Fixture` of snapshots_test.cc.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capture/call_context.h"
#include "capture/context_roles.h"
#include "capture/finalizer_tracker.h"
#include "capture/frame_roles.h"
#include "capture/roles.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/known_sources.h"
#include "unit/capture/frames.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture::test {

// Nothing has a finalizer.
struct FakeHost final : FinalizerTracker::Host {
  void endFor(const std::string&) override {}
  void endAndRelease(const std::string&) override {}
  std::optional<ir::StateId> beginFinalizer(const std::string&) override { return std::nullopt; }
  void expectWrites() override {}
  void finishFinalizer(ir::ValueId, ir::StateId) override {}
};

struct FakeBreaks final : BreakSink {
  bool live = true;
  bool strict = false;
  std::vector<diag::Code> ends;
  std::vector<std::string> reasons;  // the first argument of each end
  std::vector<diag::Code> noted;

  bool isLive() const override { return live; }
  void abort(diag::Code code, std::vector<std::string> args) override {
    live = false;
    ends.push_back(code);
    reasons.push_back(args.empty() ? "" : args[0]);
  }
  void noteBreak(diag::Code code, std::vector<std::string>) override { noted.push_back(code); }
  bool isStrict() const override { return strict; }
};

// Constants by identity, as in a recording.
struct FakeConstants final : ConstantIds {
  ConstantPool pool;
  ir::ConstId constId(PyObject* object) override { return pool.add(object).id; }
};

// Knows the virtual objects of a table, and those that a test names.
struct FakeObjects final : KnownObjects {
  explicit FakeObjects(VirtualTable& table) : virtuals(table) {}
  VirtualTable& virtuals;
  std::vector<std::pair<PyObject*, Shadow>> known;

  std::optional<Shadow> knownObject(PyObject* object) override {
    for (const auto& [other, shadow] : known) {
      if (other == object) return shadow;
    }
    const auto made = virtuals.find(object);
    return made ? std::optional(Shadow::virt(*made)) : std::nullopt;
  }
  Shadow newVirtual(VirtualKind kind, PyObject* object) override { return virtuals.add(kind, object); }
};

// Appends to a trace and keeps what was written.
struct FakeWriter final : TraceWriter {
  explicit FakeWriter(ir::Trace& trace) : trace(trace) {}
  struct Written {
    ir::Op op;
    std::vector<ir::Operand> operands;
    ir::StateId snap;
  };
  ir::Trace& trace;
  std::vector<Written> written;

  size_t emit(ir::Op op, const std::vector<ir::Operand>& operands, const std::vector<ir::Type>& results,
              ir::StateId snap) override {
    written.push_back({op, operands, snap});
    return trace.append(op, operands, results, snap);
  }
};

// Old objects are sources, numbered in the order in which they are first asked for. Everything can be pinned
// unless a test says otherwise.
struct FakeGuards final : SourceGuards, ValuePins, ContainerPins, FunctionPins, StepArguments {
  FakeConstants constants;
  std::vector<PyObject*> roots;
  std::vector<std::pair<guard::GuardKind, ir::SourceId>> guards;
  std::vector<guard::SourceKind> reads;
  std::vector<PyTypeObject*> versions;                    // guarded
  std::vector<std::pair<PyObject*, Py_ssize_t>> lengths;  // guarded
  std::vector<PyObject*> pinned;                          // by pin(), and the containers of the others
  PyObject* frozen = nullptr;
  bool canPin = true;

  ir::ConstId constId(PyObject* object) override { return constants.constId(object); }
  Shadow pinnedRoot(PyObject* object) override {
    auto found = std::find(roots.begin(), roots.end(), object);
    if (found == roots.end()) found = roots.insert(roots.end(), object);
    return Shadow::source(static_cast<ir::SourceId>(found - roots.begin()));
  }
  Shadow readSource(guard::SourceKind kind, ir::SourceId, PyObject*, int64_t, PyObject* object) override {
    reads.push_back(kind);
    return pinnedRoot(object);
  }
  ir::SourceId sourceOf(Shadow& shadow, PyObject* object) override {
    if (!shadow.isSource()) shadow = pinnedRoot(object);
    return shadow.sourceId();
  }
  void guard(guard::GuardKind kind, ir::SourceId source, ir::ConstId, int64_t, ir::SourceId) override {
    guards.emplace_back(kind, source);
  }
  void guardType(Shadow shadow, PyObject*) override {
    if (shadow.isSource()) guards.emplace_back(guard::GuardKind::kType, shadow.sourceId());
  }
  bool pin(Shadow& shadow, PyObject* object) override {
    if (canPin) shadow = Shadow::constant();
    return note(object);
  }
  Shadow valueOfTensor(Shadow shadow, PyObject*) override { return shadow; }
  void guardTypeVersion(PyTypeObject* type) override { versions.push_back(type); }
  bool tryPinDeep(Shadow& shadow, PyObject* object) override { return pin(shadow, object); }
  void guardLength(Shadow, PyObject* object, Py_ssize_t length) override {
    lengths.emplace_back(object, length);
  }
  bool pinLength(Shadow, PyObject* container) override { return note(container); }
  bool pinKeys(Shadow, PyObject* dict) override { return note(dict); }
  bool pinContainer(Shadow&, PyObject* container) override { return note(container); }
  bool isFrozen(PyObject* object) const override { return object == frozen; }
  Shadow tensorShadow(PyObject*, Shadow shadow) override { return shadow; }
  bool comesFromStep(Shadow) const override { return false; }
  void pinFunction(PyObject* function) override { note(function); }
  bool isArgument(Shadow) const override { return false; }

  bool note(PyObject* object) {
    pinned.push_back(object);
    return canPin;
  }
};

// Entries of old dicts have this shadow.
constexpr ir::SourceId kEntry = 70;

struct FakeContainers final : ContainerReads {
  explicit FakeContainers(Overlays& table) : overlays(table) {}
  Overlays& overlays;
  std::vector<PyObject*> read;  // keys

  Shadow current(Shadow shadow) override { return shadow; }
  Shadow dictEntry(Shadow, PyObject*, PyObject* key, PyObject*) override {
    read.push_back(key);
    return Shadow::source(kEntry);
  }
  std::optional<Shadow> readBack(const WrittenEntries& written, PyObject* key, PyObject*,
                                 PyObject*) override {
    const auto entry = written.find(key);
    return entry ? std::optional(entry->shadow) : std::nullopt;
  }
  Overlay& makeOverlay(PyObject* object) override { return overlays.make(object).overlay; }
};

// Objects that escape get the values from 40 on.
struct FakeSnapshots final : SnapshotMaker, FrameStates {
  FakeSnapshots(VirtualTable& table, ir::Trace& written) : virtuals(table), trace(written) {}
  VirtualTable& virtuals;
  ir::Trace& trace;
  FakeConstants constants;
  bool rebuildable = true;
  bool canEscape = true;
  bool canName = true;  // everything has an operand
  ir::RecipeId running = ir::kNone;
  std::vector<PyObject*> escaped;
  ir::ValueId next = 40;

  ir::StateId stateBefore() override {
    ir::FrameState state;
    state.rebuildable = rebuildable;
    return trace.addState(state, {}, {});
  }
  bool operandOf(Shadow shadow, PyObject* object, ir::Operand& out) override {
    if (shadow.isConst()) out = ir::Operand::constant(constants.constId(object));
    if (shadow.isSource()) out = ir::Operand::source(shadow.sourceId());
    if (shadow.isValue()) out = ir::Operand::value(shadow.valueId());
    if (shadow.isVirtual()) out = ir::Operand::value(virtuals[shadow].value);
    return canName;
  }
  bool escape(Shadow& shadow, PyObject* object) override {
    escaped.push_back(object);
    if (shadow.isVirtual() && virtuals[shadow].value == ir::kNone) virtuals[shadow].value = next++;
    return canEscape;
  }
  bool escapeHandled() override { return true; }
  bool isRunning(ir::RecipeId recipe) const override { return recipe == running; }
  CallSite callSite(const Instr& instr, size_t popped, Shadows, ir::ReturnAction) override {
    CallSite site;
    site.instr = &instr;
    site.popped = popped;
    return site;
  }
  ir::StateId makeState(ShadowFrame&, int32_t, size_t, const Shadows&, ir::ReturnAction,
                        ir::Operand) override {
    return stateBefore();
  }
};

// Frames that are announced.
struct FakeFrames final : FrameCalls {
  std::vector<PendingFrame> expected;
  Shadow result;  // of the next frame that returns

  void expectFrame(PendingFrame pending) override { expected.push_back(std::move(pending)); }
  PendingFrame methodFrame(PyObject* function, Shadow, PyObject*) override {
    PendingFrame frame;
    frame.function = pyapi::newRef(function);
    return frame;
  }
  Shadow returned() override { return result; }
};

// Nothing varies but what a test names.
struct FakeVarying final : VaryingValues {
  PyObject* container = nullptr;
  PyObject* text = nullptr;
  bool numbers = false;

  bool isOpenText(Shadow) const override { return false; }
  bool isVaryingText(Shadow, PyObject* object) const override { return object == text; }
  bool hasVaryingLength(PyObject* object) const override { return object == container; }
  bool opensNumbers(ir::SourceId) const override { return numbers; }
  Shadow numberInput(ir::SourceId source, PyObject*) override { return Shadow::value(100 + source); }
};

}  // namespace kintsugi::capture::test
