// The recorder: watches the interpreter run one call for real and writes the trace.
//
// Idea: for each instruction a record handler (capture/record/*.cc) looks at the shadows of the operands,
// adds the guards for what it reads, lets it be executed, and gives the result a shadow. Invariants:
//  * a shadow stack has the depth of the real stack before every instruction (checked in debug builds);
//  * guards and snapshots of an instruction are made before it has run; afterwards only results;
//  * what a handler does not understand is an opaque step or ends the recording; it is never ignored.
//
// Ownership: made by the driver for one call. Thread: that call's; GIL held. Throws nothing outside.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/plain_objects.h"
#include "capture/recorder_state.h"
#include "capture/special_methods.h"
#include "pyapi/arguments.h"
#include "pyapi/frame.h"

namespace kintsugi::capture {

struct SideStart;
class Recorder final : public StepObserver,
                       private torchapi::NumberSink,
                       private FinalizerTracker::Host,
                       private RecorderState {
 public:
  enum class CallKind : uint8_t { kOpaque, kKnown, kPure };

  Recorder(const RecorderOptions& options, PyObject* function, const pyapi::Arguments& args);
  Recorder(const RecorderOptions& options, const SideStart& start);  // goes on after a side exit (restore.cc)
  ~Recorder() override;

  bool enterFrame(Activation& act, bool throwing) override;
  Flow step(Activation& act, const Instr& instr) override;
  void caught(Activation& act, int32_t depth, bool pushedLasti) override;
  void leaveFrame(Activation& act, Flow how) override;

  bool wants(pyapi::Frame* frame);  // should the hook show this frame to the recorder at all?
  bool enterGeneratorFunction(pyapi::Frame* frame);     // was just called: CPython makes the object
  void frameOpened(size_t index, pyapi::Frame* frame);  // of the snapshot, innermost 0: it waits
  void expectRestored(size_t index) { restored_.expect(index); }
  std::unique_ptr<CaptureResult> finish();  // after the call
  bool live() const { return breaks_.isLive(); }
  void abort(diag::Code code, std::vector<std::string> args = {});  // the call goes on unrecorded
  Flow execute(Activation& act, const Instr& instr);

  // Constants, sources, guards (sources.cc)
  ir::ConstId constId(PyObject* object);
  Shadow readSource(guard::SourceKind kind, ir::SourceId parent, PyObject* key, int64_t index,
                    PyObject* object);
  Shadow pinnedRoot(PyObject* object);                      // a source for an object known by identity
  ir::SourceId sourceOf(Shadow& shadow, PyObject* object);  // kConst becomes a pinned root
  void guard(guard::GuardKind kind, ir::SourceId source, ir::ConstId key = ir::kNone, int64_t number = 0,
             ir::SourceId other = ir::kNone);
  void guardType(Shadow shadow, PyObject* object);
  void guardTypeVersion(PyTypeObject* type);
  void guardLength(Shadow shadow, PyObject* object, Py_ssize_t length);
  // Makes the trace depend on the very object (plain immutables: value; others: identity). False: aborted.
  bool pin(Shadow& shadow, PyObject* object);
  bool pinDeep(Shadow& shadow, PyObject* object);  // tensors stay values; containers are pinned part by part
  Shadow tensorShadow(PyObject* tensor, Shadow shadow);
  bool isFrozen(PyObject* object) const { return frozen_.contains(object); }
  void freeze(PyObject* object);  // it can't change, and follows from what is pinned (calls/signatures.cc)

  // Virtual objects (virtuals.cc)
  Shadow newVirtual(VirtualKind kind, PyObject* object);
  Shadow newCell(PyObject* cell, Shadow content);
  std::optional<Shadow> closureCell(ShadowFrame& frame, int index, PyObject* cell);
  Virtual& virtualOf(Shadow shadow) { return virtuals_[shadow]; }
  std::optional<Shadow> knownObject(PyObject* object);
  void touched() { virtuals_.touch(); }
  void touched(const Virtual& v) { virtuals_.touch(v); }
  void touched(Shadow shadow) { shadow.isVirtual() ? touched(virtualOf(shadow)) : touched(); }
  bool setEntry(Virtual& v, PyObject* key, Shadow value) { return virtuals_.setEntry(v, key, value); }
  std::optional<Shadow> entryOf(Virtual& v, PyObject* key) { return virtuals_.entryOf(v, key); }
  bool setAttrShadow(Virtual& v, PyObject* n, Shadow value) { return virtuals_.setAttribute(v, n, value); }
  Shadow tupleOf(PyObject* tuple, std::vector<Shadow> parts);
  // Elements of a list or tuple: guards the length of a source. Empty optional: not known.
  std::optional<std::vector<Shadow>> elementsOf(Shadow shadow, PyObject* sequence);
  std::optional<Shadow> elementOf(Shadow shadow, PyObject* sequence, Py_ssize_t index);
  Shadow dictEntry(Shadow shadow, PyObject* dict, PyObject* key, PyObject* value);
  Overlay* overlayOf(PyObject* object) { return overlays_.find(object); }
  Overlay& makeOverlay(PyObject* object);

  // Reads, writes and truth (heap.cc). False or nothing: the recording has ended.
  std::optional<Shadow> readGlobal(PyObject* globals, PyObject* builtins, PyObject* name);
  bool lacksKey(Shadow shadow, PyObject* dict, PyObject* key);
  bool storeCell(Shadow cell, PyObject* object, Shadow value, PyObject* real);
  bool storeItem(Shadow shadow, PyObject* dict, PyObject* key, Shadow value, PyObject* real);
  bool emitEffect(ir::Op op, const std::vector<std::pair<Shadow, PyObject*>>& parts,
                  PyObject* name = nullptr);
  bool pinLength(Shadow shadow, PyObject* container);
  bool pinIsNone(Shadow shadow, PyObject* object);
  bool pinTruth(Shadow shadow, PyObject* object);
  PendingFrame methodFrame(PyObject* function, Shadow self, PyObject* object);
  void pinFunction(PyObject* function);
  std::optional<bool> tensorTruth(Shadow shadow, PyObject* tensor, bool replace);
  // Attribute writes (stores.cc)
  bool planStore(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                 PyObject*& setter);
  bool storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                    PyObject*& setter);
  bool storeFunction(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                     PyObject*& setter);
  bool planDelete(Shadow shadow, PyObject* object, PyObject* name, PyObject*& deleter);
  bool deleteGeneric(Shadow shadow, PyObject* object, PyObject* name);
  bool noteWrite(PyObject* dict, PyObject* key, Shadow value);
  bool noteDelete(PyObject* dict, PyObject* key);
  bool isDirty(PyObject* container);
  bool recordReturn(ShadowFrame& frame, Shadow shadow, PyObject* object);
  void pinImport(PyObject* module, PyObject* name);
  std::optional<Shadow> moduleAttribute(Shadow shadow, PyObject* module, PyObject* name);
  // Questions (queries.cc)
  bool comesFromStep(Shadow shadow) const;
  bool isArgument(Shadow shadow) const;  // as new in each call as an argument is
  static bool isIdentityValue(PyObject* object);
  bool canPinDeep(Shadow shadow, PyObject* object);
  bool tryPinDeep(Shadow& shadow, PyObject* object);
  Shadow current(Shadow shadow);        // a virtual that unknown code may have changed is an old object now
  bool plainIteration(PyObject* dict);  // a dict, or a subclass that does not override iteration
  bool plainDict(PyObject* dict);       // a dict, or a subclass that does not override look-up
  CallKind stepKind(PyObject* object);
  bool pinIdentity(Shadow a, PyObject* x, Shadow b, PyObject* y);
  bool pinContainer(Shadow& shadow, PyObject* container);
  bool pinKeys(Shadow shadow, PyObject* dict);
  // For the models of C callables (calls/support.cc)
  bool exhausted(Shadow iterator);
  void superArguments(ShadowFrame& frame, PyObject*& type, PyObject*& self, Shadow& selfShadow);
  bool isItemsView(Shadow shadow);
  bool acceptsTorch(Shadow shadow, PyObject* object);
  static bool answersCompiling(PyObject* function);
  Flow answerCompiling(CallContext& ctx, Shadow& result);
  // Lists and iteration (containers.cc)
  std::optional<std::vector<Shadow>> iterated(Shadow shadow, PyObject* object);
  std::optional<std::vector<Shadow>> dictParts(Shadow shadow, PyObject* dict, int64_t what);
  bool orderIsKnown(Shadow shadow, PyObject* set);
  Shadow newIterator(PyObject* iterator, Shadow shadow, PyObject* object);
  std::optional<Shadow> advance(Shadow iterator, PyObject* item);
  std::optional<Shadow> advanceView(Shadow view, int64_t at, PyObject* item);
  bool prepareNext(Shadow iterator, CallSite site = {});  // the site of a generator's frame
  Shadow itemOf(Shadow iterable, Shadow part, PyObject* item);
  bool deleteItem(Shadow shadow, PyObject* dict, PyObject* key);
  void expectItems(Shadow generator);
  std::vector<Shadow> takeItems();
  bool emitMethod(const char* method, Shadow shadow, PyObject* object,
                  const std::vector<std::pair<Shadow, PyObject*>>& args);
  ir::StateId stateBefore();  // of the instruction that is being recorded
  CallSite callSite(const Instr& instr, size_t popped, std::vector<Shadow> extra = {},
                    ir::ReturnAction action = ir::ReturnAction::kPush);
  bool operandOf(Shadow shadow, PyObject* object, ir::Operand& out);
  ir::RecipeId addRecipe(ir::Recipe recipe);
  // Builds a virtual here, because something outside will hold it.
  bool escape(Shadow& shadow, PyObject* object);
  bool canExit(ShadowFrame& frame) const { return frame.rebuildable; }
  // Steps (steps.cc)
  size_t emit(ir::Op op, const std::vector<ir::Operand>& operands, const std::vector<ir::Type>& results,
              ir::StateId snap);
  bool guardTruth(ir::ValueId value, bool truth);
  bool pinAnswer(const char* function, const std::vector<ir::Operand>& args, PyObject* answer);
  bool pinAnswerOf(PyObject* callable, const std::vector<ir::Operand>& args, PyObject* answer);
  void flushBlock();
  bool guardScalar(ir::ValueId value, PyObject* number);
  bool hasStaticMeta(Shadow shadow, PyObject* tensor) const;
  // Runs the instruction unrecorded and writes it as a call; the result's shadow is pushed by the caller.
  Flow callStep(CallContext& ctx, CallKind kind, const char* reason, Shadow& result);
  // Runs the instruction, of whose result all is known, and writes it as a call that may be made later.
  Flow quietCall(CallContext& ctx);
  // Runs the instruction with the dispatcher's log on and takes the operations that it made into the trace.
  Flow torchStep(CallContext& ctx, Shadow& result);
  Flow executeLogged(CallContext& ctx);
  Flow torchSequence(Activation& act, const Instr& instr, int pushed, int behind = -1);
  std::optional<Shadow> torchOperation(ir::StateId snap, pyapi::Ref<>& result,
                                       const std::function<PyObject*()>& operation);
  Flow replaceCall(CallContext& ctx, pyapi::Ref<> result);  // instead of executing it: a model has the result
  std::optional<Shadow> adoptResult(PyObject* result, const torchapi::DrainResult& drained);
  void expectFrame(PendingFrame pending);
  void expectThen(PendingFrame next) { expected_.expectNext(std::move(next)); }  // when it has returned
  Flow callInPlace(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function, int count,
                   const std::vector<PyObject*>& constants = {});
  bool listItems(ShadowFrame& frame, Activation& act, const Instr& instr, PyObject* function,
                 PyObject* limit);
  Shadow returned();
  Shadow frameResult(PyObject* object);  // of the expected frame: a value or a generator object
  bool isOpaqueCode(PyObject* code) const;
  void noteBreak(diag::Code code, std::vector<std::string> args);  // before the step runs
  Flow raiseAssertion(const std::string& message);  // instead of the instruction; ends the recording
  bool isStrict() const;                            // a break is an error here
  void stale();                                     // after an opaque step
  ir::Trace& trace() { return document_.trace; }
  torchapi::OpRecorder& ops() { return ops_; }
  RecorderState& known() { return *this; }
  torchapi::NumberSink& numberSink() { return *this; }
  void endFirst();  // between the two objects that an instruction lets go of

 private:
  friend class Restorer;
  void endFor(const std::string& what) override;
  void endAndRelease(const std::string& what) override;
  std::optional<ir::StateId> beginFinalizer(const std::string& name) override;
  void expectWrites() override { classVersions_.expectWrites(); }
  void finishFinalizer(ir::ValueId value, ir::StateId snap) override;
  void checkFinalizers();
  void beginWithGuard(const SideStart& start);
  void restoreFrames(const SideStart& start);
  Shadow adoptSource(ir::SourceId id, PyObject* object);
  bool resumeRestored(Activation& act, bool throwing);
  bool acceptFrame(Activation& act);
  bool throwsInto(Activation& act) const;
  void pinNumber(ir::ValueId value) override;
  void checkHandlers(ir::StateId snap);
  bool pinForTorch(Shadow& shadow, PyObject* object);
  pyapi::Ref<> symbolic(Shadow shadow, PyObject* object);
  Flow executeSymbolic(CallContext& ctx);
  bool resumeGenerator(Activation& act, Virtual& generator);
  void watch(uint32_t generator);
  void closeDropped();
  void closeOne(Virtual& generator);
  void letGo();
  void checkWatched();
  Virtual* runningGenerator(Activation& act);
  bool recordRaised(CallContext& ctx, CallKind kind, std::vector<ir::Operand> operands, ir::StateId snap);
  ShadowFrame* frameOf(Activation& act) const { return static_cast<ShadowFrame*>(act.observerData); }
  std::optional<Shadow> defaultOf(PyObject* function, Shadow shadow, int parameter, PyObject* object);
  void checkBlocks();
  bool holdsMutable(Shadow shadow);
  void refuse(const diag::Diagnostic& diagnostic);
  Flow raiseRefused();
  bool resultUnused() const;
  Shadow caughtException(PyObject* exception);
  bool callOperands(CallContext& ctx, CallKind kind, std::vector<ir::Operand>& operands);
  bool quietOperands(CallContext& ctx, std::vector<ir::Operand>& operands);
  size_t emitCall(CallContext& ctx, CallKind kind, const std::vector<ir::Operand>& operands,
                  ir::StateId snap);
  Shadow appendCall(CallContext& ctx, CallKind kind, const std::vector<ir::Operand>& operands,
                    ir::StateId snap, PyObject* result);
  void forgetEscaped(CallContext& ctx);
  bool scalarsExplained(PyObject* result, const torchapi::DrainResult& drained);
  void undo(const torchapi::DrainResult& drained);
  Shadow describeSource(ir::SourceId id, guard::SourceKind kind, PyObject* object);
  void guardDistinct(ir::SourceId id, PyObject* object);
  bool pinVirtual(Shadow& shadow, PyObject* object);
  bool bindArguments(ShadowFrame& frame, Activation& act, PendingFrame& pending);
  ir::StateId callerState(ShadowFrame& frame);
  ir::StateId makeState(ShadowFrame& frame, int32_t pc, size_t popped, const std::vector<Shadow>& extra,
                        ir::ReturnAction action, ir::Operand replacement);
  std::optional<ir::RecipeId> recipeOf(uint32_t virtualId);
  bool recipeParts(Virtual& v, ir::Recipe& recipe);
};

}  // namespace kintsugi::capture
