// Models of C callables, as tables: what a call reads, changes and gives back. One row, one test.
//
// A model adds the guards for what the callable reads, executes the call instruction (through the recorder)
// exactly once, and says what the result's shadow is. A callable without a row is an opaque step. Rows are
// found by the callable's identity: "math.sqrt" is that attribute of that module, "list.append" the method
// descriptor of the type. Files add their rows where `entryOf` in model.cc first asks for the table;
// docs/howto/add-a-c-callable-model.md says how to add one. Thread: the recording one, GIL held. The table is
// made once and never freed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "capture/calls/facts.h"
#include "capture/makers.h"
#include "capture/record_context.h"
#include "capture/special_methods.h"

namespace kintsugi::capture {

using CallModel = Flow (*)(CallContext& ctx, Shadow& result);

struct ModelRow {
  const char*
      callable;  // "module.function" or "module.Type.method"; a trailing ".*" covers all C functions in it
  CallModel model;
  Facts facts = {};
};

// A registered row. The tests go through all of them.
struct ModelEntry {
  std::string callable;
  Refs objects;  // empty: this version does not have it
  CallModel model;
  Facts facts;
};
const std::deque<ModelEntry>& modelEntries();  // rows stay where they are
// Finds what all rows name, the first time. The package asks for it when it is imported: it takes as long as
// the first call of a small function, and what a program replaces afterwards is not taken for the original.
void registerModels();
// The row of a callable, or null; found as by modelOf().
const ModelEntry* entryOf(PyObject* callable);
// The same. For a function that torch has wrapped to keep its own compiler out, the row of the wrapped
// function.
const ModelEntry* entryBehind(PyObject* callable);
// True if a C callable may wait for other processes, so that its duration depends on them.
bool waitsForProcesses(PyObject* callable);
// A name for tests and tools: "fold", "constant" ...; "own" for a model of a single file.
const char* kindOf(CallModel model);

// The model of a callable or null. `callable` is unbound: a builtin function, a type or a method descriptor.
CallModel modelOf(PyObject* callable);

void addModels(const ModelRow* rows, size_t count);
void registerBuiltinModels();
void registerFoldedModels();
void registerClassCheckModels();
void registerContainerModels();
void registerListModels();
void registerFrameModels();
void registerGeneratorModels();
void registerCopyModels();
void registerFunctionModels();
void registerObjectModels();
void registerTorchModels();
void registerTorchTensorModels();
void registerOutputModels();
void registerTransformModels();
void registerHigherOrderModels();
void registerFunctionModeModels();
void registerPolyfillModels();
void registerSetModels();
void registerSignatureModels();
void registerDequeModels();
void registerGetterModels();
void registerRegexModels();
void registerLazyModels();
void registerClassModels();
void registerStandardLibraryModels();
void registerDistributedModels();
void registerWaitingModels();

// Common models
Flow operatorModel(CallContext& ctx,
                   Shadow& result);                // of `operator`: changes its first argument, or calls it
Flow foldModel(CallContext& ctx, Shadow& result);  // pure on immutables: pinned arguments, constant result
// As foldModel, for callables that tell objects apart and read nothing of objects that are compared by
// identity.
Flow identityModel(CallContext& ctx, Shadow& result);
Flow formatModel(CallContext& ctx, Shadow& result);  // str.format()
// As foldModel, but with a tensor among the arguments it is a tensor operator, which takes run-time numbers
// as they are.
Flow arithmeticModel(CallContext& ctx, Shadow& result);
// The result depends on the arguments, which are pinned, and on guarded global state.
Flow constantModel(CallContext& ctx, Shadow& result);
// May wait for another thread, or tells of one, which may have changed anything: everything is read again
// behind it. It is no graph break: the program asked for it.
Flow blockingModel(CallContext& ctx, Shadow& result);
// Output in the program's name: each run makes the call again in its place; it is no break. It may run Python
// code (filters, handlers, streams), so everything is read again after it.
Flow outputModel(CallContext& ctx, Shadow& result);
Flow knownModel(CallContext& ctx,
                Shadow& result);  // each run calls it again; it changes nothing that guards read
Flow opaqueModel(CallContext& ctx, Shadow& result);     // an opaque step
Flow frameModel(CallContext& ctx, Shadow& result);      // looks at the frame of its caller
Flow torchModel(CallContext& ctx, Shadow& result);      // its dispatcher calls are recorded
Flow torchMetaModel(CallContext& ctx, Shadow& result);  // reads tensor metadata

struct AttributePlan;
Flow readByPlan(CallContext& ctx, AttributePlan plan, bool has, Shadow& result);  // getattr and the like
Flow iterableObject(CallContext& ctx,
                    Shadow& result);                  // list(x), tuple(x) of an object with a Python __iter__
Flow newTypeModel(CallContext& ctx, Shadow& result);  // type(name, bases, dict)
Flow sumModel(CallContext& ctx, Shadow& result);
Flow extremeModel(CallContext& ctx, Shadow& result, int op);  // min() is Py_LT, max() is Py_GT
Flow iterUntilModel(CallContext& ctx, Shadow& result);        // iter(callable, sentinel)
// The callable keeps its arguments. So a container of the trace has to be built: it must be one object for
// both.
Flow keepModel(CallContext& ctx, Shadow& result);
Flow reversedObject(CallContext& ctx, Shadow& result);  // by __len__ and __getitem__
// all(), any(), sum(), min(), max(); `adds`: it is sum()
Flow reduceModel(CallContext& ctx, Shadow& result, bool adds = false);
// Calls a polyfill in place of the callable, if the program's own code makes the call.
std::optional<Flow> enterPolyfill(CallContext& ctx, const char* name, Shadow& result);
// A call of one of our Python functions in place of an instruction.
struct Replacement {
  PyObject* function = nullptr;
  PooledVector<PyObject*> args;  // the positional ones, then those of the keywords
  Shadows shadows;
  size_t positional = 0;
  PyObject* names = nullptr;  // a tuple, or null
};
Flow callReplacement(CallContext& ctx, const Replacement& call, Shadow& result);
// The same with the arguments of the call, whatever lies on the value stack: a partial, a bound method.
Flow callPolyfill(CallContext& ctx, const char* name, Shadow& result);
// The same for a class method in C, which is called as a builtin that is bound to the class. The polyfill
// gets the class as its first argument, as `ctx` has it.
std::optional<Flow> enterClassPolyfill(CallContext& ctx, const char* name, Shadow& result);
// The polyfill that asks for an object's truth if Python code decides it; null if C code does.
const char* truthFunction(PyObject* object);
// For a subclass of list that makes its instances as list does. Nothing: it is another class.
std::optional<Flow> listCall(CallContext& ctx, const PooledVector<PyObject*>& args, const Shadows& shadows,
                             PyTypeObject* type, Shadow& result);
// functools.singledispatch's dispatch(). Nothing: it is another function, or not known.
std::optional<Flow> dispatchModel(CallContext& ctx, Shadow& result);
// The model of a function in a module that may be imported later, found by its code; or null.
CallModel modelOfCode(PyObject* code);
// The model of a Python function. If torch has wrapped the function to keep its own compiler out, the model
// of the wrapped one.
CallModel modelOfFunction(PyObject* function);
// torch's map operator inside torch's code that a polyfill runs. Nothing: it is called elsewhere, or is
// another operator.
std::optional<Flow> mapOperatorCall(CallContext& ctx, Shadow& result);
bool isTransformCode(PyCodeObject* code);   // of torch's transforms (functorch)
bool isWholeTransform(PyCodeObject* code);  // of a transform that is one step (linearize and the like)
bool leavesTransforms(PyCodeObject* code);  // its handlers only leave transforms
Flow unknownSequence(CallContext& ctx, Shadow& result);
Shadow frozenPart(RecordContext& rec, PyObject* object);  // what was read from a frozen object
bool pinSet(RecordContext& rec, Shadow shadow, PyObject* set);
bool pinMember(RecordContext& rec, Shadow item, PyObject* object, Shadow set);
bool hashesByIdentity(PyObject* object);  // its class hashes by identity and has no `__eq__` of its own
// True for a tensor with any data (its `__hash__` is Python code), and for an object that the trace has made
// and that hashes by identity.
bool isMemberByIdentity(Shadow item, PyObject* object);
Shadow memberShadow(RecordContext& rec, Shadow item, PyObject* object);  // of such an object

// torch.tensor() of literals of the program. Nothing: they are no literals.
std::optional<Flow> literalTensorModel(CallContext& ctx, Shadow& result);

// True if the Python function, or class, accepts the arguments of `ctx`. If not, its error would read
// differently.
bool acceptsArguments(PyObject* called, const CallContext& ctx);
// Puts `function` in the callable's place on the value stack and records its call. It has to do the same.
Flow callInstead(CallContext& ctx, PyObject* function, Shadow& result);
// Records the call of a Python function as a frame, as if it had no model.
Flow inlineFunction(CallContext& ctx, Shadow& result);

// Finds out whether a result is one of the arguments, or an item in one. A pinned value may be an equal but
// different object in another call, and `is` tells the two apart. Made before the call, which consumes its
// arguments.
class ArgumentObjects {
 public:
  explicit ArgumentObjects(CallContext& ctx);
  // The shadow of the argument that `object` is; else a constant.
  Shadow shadowOf(PyObject* object) const;

 private:
  void add(PyObject* object, Shadow shadow);

  std::vector<std::pair<pyapi::Ref<>, Shadow>> objects_;
};

inline Flow run(CallContext& ctx) { return ctx.rec.execute(ctx.act, ctx.instr); }
// Executes the call. If it has succeeded, `result` is a new virtual object of this kind.
Flow runVirtual(CallContext& ctx, VirtualKind kind, Shadow& result);

}  // namespace kintsugi::capture
