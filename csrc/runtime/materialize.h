// Makes Python objects of operands: sources, constants, trace values, and recipes of objects that the trace
// made.
//
// Idea: one Materializer is one moment. Within it every RecipeId is one object, so that aliases among the
// parts of a result, of a call's arguments or of a snapshot's frames stay aliases; another moment makes new
// objects.
//
// Ownership: borrows the recording, the values and the slots; owns the objects that it made until it dies.
// Threads: GIL. Building may run Python code (a recipe of kind kCall or kIterator, `__new__`).
// Invalidation: lives no longer than the run that it belongs to.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "pyapi/ref.h"
#include "torchapi/value.h"

namespace kintsugi::recording {
struct Recording;
}

namespace kintsugi::runtime {

// The objects that stand for numbers of a run: one for each value, since a NaN is found by its identity
// (`losses.index(max(losses))`), and `a is b` may be asked. Numbers that the run has read are there from the
// start, as the objects that they were read from; but not arguments, which the caller holds.
using NumberObjects = std::unordered_map<ir::ValueId, PyObject*>;

// What a run knows at one moment.
struct RunView {
  const recording::Recording& recording;
  const torchapi::Value* values;        // by ValueId
  PyObject* const* objects;             // by ValueId: the results of steps that sources start at
  PyObject* const* slots;               // by SourceId
  NumberObjects* numbers;               // owned by the run
  const ir::SourceId* numberArguments;  // by ValueId: the argument that a number is, or ir::kNone
};

class Materializer {
 public:
  explicit Materializer(const RunView& run) : run_(run), recording_(run.recording) {}

  // The object of an operand; `out` is empty for the operand `null`. False: a Python exception is pending.
  bool get(const ir::Operand& operand, pyapi::Ref<>& out);
  // The same where an empty slot makes no sense. Null: a Python exception is pending.
  pyapi::Ref<> object(const ir::Operand& operand);

 private:
  pyapi::Ref<> recipe(ir::RecipeId id);
  pyapi::Ref<> build(const ir::Recipe& recipe);
  pyapi::Ref<> buildTuple(const ir::Recipe& recipe, size_t first);
  pyapi::Ref<> buildList(const ir::Recipe& recipe);
  pyapi::Ref<> buildDict(const ir::Recipe& recipe);
  pyapi::Ref<> buildSet(const ir::Recipe& recipe, bool frozen);
  pyapi::Ref<> buildSlice(const ir::Recipe& recipe);
  pyapi::Ref<> buildInstance(const ir::Recipe& recipe);
  pyapi::Ref<> buildDictInstance(const ir::Recipe& recipe);
  pyapi::Ref<> buildNamedTuple(const ir::Recipe& recipe);
  pyapi::Ref<> buildCell(const ir::Recipe& recipe);
  pyapi::Ref<> buildFunction(const ir::Recipe& recipe);
  pyapi::Ref<> buildMethod(const ir::Recipe& recipe);
  pyapi::Ref<> buildSequenceIterator(const ir::Recipe& recipe);
  pyapi::Ref<> buildIterator(const ir::Recipe& recipe);
  pyapi::Ref<> buildCall(const ir::Recipe& recipe);
  pyapi::Ref<> buildGenerator(const ir::Recipe& recipe);
  pyapi::Ref<> buildCallEx(const ir::Recipe& recipe);
  pyapi::Ref<> buildException(const ir::Recipe& recipe);
  pyapi::Ref<> buildTraceback(const ir::Recipe& recipe);
  pyapi::Ref<> buildClass(ir::RecipeId id, const ir::Recipe& recipe);
  bool fillCells();
  bool setAttributes(PyObject* instance, const ir::Recipe& recipe, size_t first);
  PyTypeObject* typeOf(const ir::Recipe& recipe) const;

  pyapi::Ref<> boxed(ir::ValueId value);
  PyObject* sourceObject(ir::SourceId source) const;

  const RunView run_;
  const recording::Recording& recording_;
  std::vector<std::pair<ir::RecipeId, pyapi::Ref<>>> made_;
  // Functions and classes that are being made, which cells may hold, and the cells that wait for them.
  int making_ = 0;
  std::vector<std::pair<pyapi::Ref<>, ir::Operand>> waiting_;
};

}  // namespace kintsugi::runtime
