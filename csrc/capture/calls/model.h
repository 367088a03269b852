// Models of C callables, as tables: what a call reads, changes and gives back. One row, one test.
//
// A model adds the guards for what the callable reads, executes the call instruction (through the recorder)
// exactly once and says what the result's shadow is. A callable without a row is an opaque step. Rows are
// found by the callable's identity: "math.sqrt" is that attribute of that module, "list.append" the method
// descriptor of the type. Files register their rows in `registerAllModels`;
// docs/howto/add-a-c-callable-model.md says how to add one. Thread: the recording one, GIL held. The table is
// made once and never freed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "capture/calls/facts.h"
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

// A row as it was registered: what the tests go through.
struct ModelEntry {
  std::string callable;
  std::vector<pyapi::Ref<>> objects;  // none: it is not in this version
  CallModel model;
  Facts facts;
};
const std::deque<ModelEntry>& modelEntries();  // rows stay where they are
// The row of a callable or null, under the same rule as modelOf().
const ModelEntry* entryOf(PyObject* callable);
// Likewise; of a function that torch has wrapped to keep its own compiler out, the row of what it wraps.
const ModelEntry* entryBehind(PyObject* callable);
// Does a C callable wait for other processes? How long it takes depends on them then.
bool waitsForProcesses(PyObject* callable);
// "fold", "constant" ...; of a model that only one file knows "own".
const char* kindOf(CallModel model);

// The model of a callable or null. `callable` is unbound: a builtin function, a type or a method descriptor.
CallModel modelOf(PyObject* callable);

void addModels(const ModelRow* rows, size_t count);
// May the rows be built? Where a result is taken for a constant, the row names the state that it depends on.
template <size_t N>
consteval bool statesAreNamed(const ModelRow (&rows)[N]);
void registerBuiltinModels();
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

// Common models
Flow operatorModel(CallContext& ctx,
                   Shadow& result);                // of `operator`: changes its first argument, or calls it
Flow foldModel(CallContext& ctx, Shadow& result);  // pure on immutables: pinned arguments, constant result
// As foldModel, of callables that tell objects apart and read nothing of those that are compared by identity.
Flow identityModel(CallContext& ctx, Shadow& result);
Flow formatModel(CallContext& ctx, Shadow& result);  // str.format()
// As foldModel; where a tensor is among the arguments, it is an operator of the tensor's, which takes numbers
// of the run as they are.
Flow arithmeticModel(CallContext& ctx, Shadow& result);
// Reads its arguments, which are pinned, and guarded global state.
Flow constantModel(CallContext& ctx, Shadow& result);
// May wait for another thread, which may have changed anything: what was read before is read again after it.
// It is no graph break: the program asked for it.
Flow blockingModel(CallContext& ctx, Shadow& result);
Flow knownModel(CallContext& ctx,
                Shadow& result);  // made again on every run; changes nothing that guards read
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
// Keeps its arguments: containers made here must be one object for whoever keeps them and for us.
Flow keepModel(CallContext& ctx, Shadow& result);
Flow reversedObject(CallContext& ctx, Shadow& result);  // by __len__ and __getitem__
// all(), any(), sum(), min(), max(); `adds`: it is sum()
Flow reduceModel(CallContext& ctx, Shadow& result, bool adds = false);
// Runs a function of kintsugi._polyfills in place of the call, where the call is one of the program's own.
std::optional<Flow> enterPolyfill(CallContext& ctx, const char* name, Shadow& result);
// A call of a Python function of ours in place of an instruction.
struct Replacement {
  PyObject* function = nullptr;
  std::vector<PyObject*> args;  // the positional ones, then those of the keywords
  std::vector<Shadow> shadows;
  size_t positional = 0;
  PyObject* names = nullptr;  // a tuple, or null
};
Flow callReplacement(CallContext& ctx, const Replacement& call, Shadow& result);
// The same with the arguments of the call, whatever lies on the value stack: a partial, a bound method.
Flow callPolyfill(CallContext& ctx, const char* name, Shadow& result);
// The same for a class method in C, which is called as a builtin that is bound to the class: the polyfill
// gets the class as its first argument, as `ctx` has it.
std::optional<Flow> enterClassPolyfill(CallContext& ctx, const char* name, Shadow& result);
// The polyfill that asks an object for its truth where Python code tells it; null where C code does.
const char* truthFunction(PyObject* object);
// A class of lists that are made as a list is; nothing: it is another.
std::optional<Flow> listCall(CallContext& ctx, const std::vector<PyObject*>& args,
                             const std::vector<Shadow>& shadows, PyTypeObject* type, Shadow& result);
// functools.singledispatch; nothing: it is another function, or not known.
std::optional<Flow> dispatchModel(CallContext& ctx, Shadow& result);
// The model of a function of a module that may be imported later, by its code; or null.
CallModel modelOfCode(PyObject* code);
// Of a Python function. Torch wraps some to keep its own compiler out of them: the model is of what they
// wrap.
CallModel modelOfFunction(PyObject* function);
// map's operator where a polyfill runs torch's code around it; nothing: it is called elsewhere, or is
// another.
std::optional<Flow> mappedRows(CallContext& ctx, Shadow& result);
bool isTransformCode(PyCodeObject* code);   // of torch's transforms (functorch)
bool isWholeTransform(PyCodeObject* code);  // of one that is a step: linearize() and its like
bool leavesTransforms(PyCodeObject* code);  // whose handlers do nothing where no transform was entered
Flow unknownSequence(CallContext& ctx, Shadow& result);
Shadow frozenPart(RecordContext& rec, PyObject* object);  // what was read from a frozen object
bool pinSet(RecordContext& rec, Shadow shadow, PyObject* set);
bool pinMember(RecordContext& rec, Shadow item, PyObject* object, Shadow set);
bool hashesByIdentity(PyObject* object);  // by its class, which says nothing of equality
// A tensor, whatever its data are (its __hash__ is Python code), or such an object that the trace has made.
bool isMemberByIdentity(Shadow item, PyObject* object);
Shadow memberShadow(RecordContext& rec, Shadow item, PyObject* object);  // of one that is

// torch.tensor() of literals of the program; nothing: they are none.
std::optional<Flow> literalTensorModel(CallContext& ctx, Shadow& result);

PyObject* polyfill(const char* name);  // borrowed from kintsugi._polyfills; null: there is none
// Can the Python function, or class, be called as `ctx` is? Otherwise it would complain in its own words.
bool acceptsArguments(PyObject* called, const CallContext& ctx);
// `function` takes the place of the callable on the value stack: it does the same, and is recorded.
Flow callInstead(CallContext& ctx, PyObject* function, Shadow& result);
// The Python function that is called, as a frame (what a call without a model is).
Flow inlineFunction(CallContext& ctx, Shadow& result);

// Compilers can't compare functions at compile time in builds with sanitizers, all of which are debug builds.
template <size_t N>
consteval bool statesAreNamed([[maybe_unused]] const ModelRow (&rows)[N]) {
#ifndef KINTSUGI_DEBUG
  for (const ModelRow& row : rows) {
    if (row.model == constantModel && row.facts.state == StateWord::kUnnamed) return false;
  }
#endif
  return true;
}

// Which argument a result is, or what lies in one: where values are pinned, an equal one will be given in
// another call, and `is` tells them apart. Made before the call, which consumes its arguments.
class GivenObjects {
 public:
  explicit GivenObjects(CallContext& ctx);
  // Of the argument that it is; otherwise it is a constant.
  Shadow shadowOf(PyObject* object) const;

 private:
  void add(PyObject* object, Shadow shadow);

  std::vector<std::pair<pyapi::Ref<>, Shadow>> objects_;
};

inline Flow run(CallContext& ctx) { return ctx.rec.execute(ctx.act, ctx.instr); }
// Executes and, when the call succeeded, makes `result` a virtual of the given kind.
Flow runVirtual(CallContext& ctx, VirtualKind kind, Shadow& result);

}  // namespace kintsugi::capture
