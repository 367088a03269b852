#include "passes/built_objects.h"

#include <vector>

namespace kintsugi::passes {

using ir::Operand;
using ir::RecipeKind;

namespace {

bool isContainer(RecipeKind kind) {
  return kind == RecipeKind::kTuple || kind == RecipeKind::kList || kind == RecipeKind::kDict ||
         kind == RecipeKind::kSlice;
}

// kNamedTuple: a tuple of another class, which is made without the class' own `__new__` (torch.Size, say).
// kCallEx: a partial or a deque, whose constructors are C code that keeps what it is given.
bool isQuiet(RecipeKind kind) {
  return isContainer(kind) || kind == RecipeKind::kFunction || kind == RecipeKind::kMethod ||
         kind == RecipeKind::kCell || kind == RecipeKind::kInstance || kind == RecipeKind::kNamedTuple ||
         kind == RecipeKind::kCallEx;
}

bool holdsOnly(const ir::Trace& trace, const Operand& operand, bool (*allowed)(RecipeKind)) {
  std::vector<bool> seen(operand.kind == ir::OperandKind::kRecipe ? trace.recipes.size() : 0);
  std::vector<Operand> open = {operand};
  while (!open.empty()) {
    const Operand next = open.back();
    open.pop_back();
    if (next.kind != ir::OperandKind::kRecipe || seen[next.id]) {
      continue;
    }
    seen[next.id] = true;
    const ir::Recipe& recipe = trace.recipes[next.id];
    if (!allowed(recipe.kind)) {
      return false;
    }
    open.insert(open.end(), recipe.parts.begin(), recipe.parts.end());
  }
  return true;
}

}  // namespace

bool isPlainBuild(const ir::Trace& trace, const Operand& operand) {
  return holdsOnly(trace, operand, isContainer);
}

bool isQuietBuild(const ir::Trace& trace, const Operand& operand) {
  return holdsOnly(trace, operand, isQuiet);
}

}  // namespace kintsugi::passes
