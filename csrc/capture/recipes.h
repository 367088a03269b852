// Recipes: how an exit makes the objects again that the trace has made, as they are at this moment.
//
// A recipe names the parts of an object as operands: constants, sources, values, other recipes. It is made
// when it is first asked for, and again after the object, or one that it holds, has changed
// (VirtualTable::noteChange()). Two names of one object are one recipe. An object that is described as
// before keeps its recipe.
//
// Ownership: borrows the tables and the trace. Owned by Snapshots; the recording thread, GIL held. Example,
// for a list `[x, 2]` that the trace has made:
//
//   ir::Operand operand;
//   if (recipes.operandOf(shadow, list, operand)) ...  // list(%0, const 2)
#pragma once

#include <initializer_list>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/roles.h"
#include "capture/tables/exception_log.h"
#include "capture/tables/virtual_table.h"
#include "pyapi/exception_state.h"

namespace kintsugi::capture {

class Recipes final {
 public:
  Recipes(ConstantIds& constants, KnownObjects& known, ir::Trace& trace, ExceptionLog& exceptions,
          VirtualTable& virtuals)
      : constants_(constants), known_(known), trace_(trace), exceptions_(exceptions), virtuals_(virtuals) {}

  // A value of Virtual::index for exceptions: the `__context__` is what the caller of the compiled function
  // handles.
  static constexpr int64_t kContextOutside = 1;

  // False: the object can't be made again.
  bool operandOf(Shadow shadow, PyObject* object, ir::Operand& out);
  std::optional<ir::RecipeId> of(uint32_t virtualId);
  // True if the object still has this recipe: neither it nor what it holds has changed since it was made.
  bool isCurrent(const NamedRecipe& named);
  ir::RecipeId add(ir::Recipe recipe);
  // True if the recipe holds a running generator. It names a frame, so only snapshots may use it.
  bool isRunning(ir::RecipeId recipe) const { return running_.contains(recipe); }
  size_t partCount() const { return partCount_; }  // of all recipes

  // The call of a function that has no effects.
  ir::Operand call(PyObject* callable, std::initializer_list<ir::Operand> args);
  // The operand of a `__cause__` or `__context__`. False if the trace does not know the object.
  bool linkedOperand(PyObject* object, ir::Operand& out);
  // Makes a traceback entry whose tb_next is `next`.
  ir::Operand tracebackEntry(const pyapi::TracebackEntry& entry, ir::Operand next);
  // The shadow of a traceback; of None if `traceback` is null.
  Shadow tracebackShadow(PyObject* traceback);

  ir::ConstId constId(PyObject* object) { return constants_.constId(object); }
  VirtualTable& virtuals() { return virtuals_; }
  ir::Trace& trace() { return trace_; }

  // While one is alive, the virtual objects whose recipes operandOf() gives are noted in `list`.
  class Naming {
   public:
    Naming(Recipes& recipes, std::vector<NamedRecipe>& list)
        : recipes_(recipes), outer_(std::exchange(recipes.named_, &list)) {}
    ~Naming() { recipes_.named_ = outer_; }
    Naming(const Naming&) = delete;
    Naming& operator=(const Naming&) = delete;

   private:
    Recipes& recipes_;
    std::vector<NamedRecipe>* outer_;
  };

 private:
  ir::RecipeId keepRecipe(Virtual& v, ir::Recipe recipe, std::vector<NamedRecipe> named);
  bool recipeParts(Virtual& v, ir::Recipe& recipe);
  bool exceptionParts(Virtual& v, ir::Recipe& recipe);
  bool tracebackParts(Virtual& v, ir::Recipe& recipe);
  bool addFields(PyObject* exception, PyObject* args, ir::Recipe& recipe);
  bool addAttributes(Virtual& v, PyObject* dict, ir::Recipe& recipe);
  ir::Operand handledOutside();

  ConstantIds& constants_;
  KnownObjects& known_;
  ir::Trace& trace_;
  ExceptionLog& exceptions_;
  VirtualTable& virtuals_;
  std::unordered_set<ir::RecipeId> running_;
  size_t partCount_ = 0;
  std::vector<NamedRecipe>* named_ = nullptr;  // see Naming; borrowed
  size_t loops_ = 0;                           // cycles that were found
};

// The `__cause__`, `__context__` and `__traceback__` of an exception, as far as it has them. Borrowed.
std::vector<PyObject*> linkedObjects(PyObject* exception);

}  // namespace kintsugi::capture
